//! Translates a `<VirtualHost>`, or the main server, into a site. Apache merges its sections for each request, from the
//! widest to the narrowest. The importer keeps them as layers in that order. A directive applies to the paths of its
//! layer, except for those of later layers with the same directive.

use super::host::ApacheHost;
use super::host_context::HostContext;
use super::layers::collect_layers;
use super::server::ServerContext;
use super::server_pools::ServerPools;
use super::tls::ClientAuthority;
use super::{access, aliases, files, headers, php, proxy, redirect, rewrite, tls};
use crate::EMPTY_ROOT;
use crate::directive::Directive;
use crate::hosting::SiteHosting;
use crate::listen;
use crate::stages::{RuleStage, StagedRules};
use crate::target::{SiteTable, TomlTable, TomlValue};

/// The site that a host becomes.
pub struct TranslatedHost {
    /// The site itself.
    pub site: SiteTable,
    /// True if the host has no files.
    pub needs_empty_root: bool,
    /// The authority of client certificates, which applies to all sites.
    pub client_authority: Option<ClientAuthority>,
}

/// Translates a host into a site. Pools that it needs are added to those of the server.
pub fn translate_host<'a>(
    host: &ApacheHost<'a>,
    answers: &SiteHosting,
    main: &'a [Directive],
    server: &ServerContext<'a>,
    pools: &mut ServerPools<'_>,
) -> TranslatedHost {
    let ledger = server.ledger;
    if let Some(block) = host.block {
        ledger.mark_carried(block.id);
    }
    let mut site = SiteTable::default();
    let mut stages = StagedRules::default();
    set_options(&mut site.table, host, answers);
    let root = files::document_root(host, main, server);
    match &root {
        Some((path, line)) => site.table.set("root", path.as_str(), Some(&line.place)),
        None => site.table.set("root", EMPTY_ROOT, None),
    }
    let root = root.map(|(path, _)| path);
    let mounts = aliases::url_mounts(host, main, root.as_deref(), server);
    let context = HostContext {
        server,
        ledger,
        host,
        layers: collect_layers(main, host, &mounts, server),
        mounts,
        root,
    };
    if let Some(rule) = private_access_rule(&context, answers) {
        stages.push(RuleStage::InternalPaths, rule);
    }
    let certificates = tls::translate_certificates(host, server);
    site.certificates = certificates.certificates;
    if let Some(rule) = certificates.denial {
        stages.push(RuleStage::InternalPaths, rule);
    }
    php::choose_pool(&context, &mut site, pools);
    files::write_options(&context, &mut site, &mut stages);
    headers::write_headers(&context, &mut site, &mut stages);
    // mod_rewrite precedes mod_alias.
    let proxied = rewrite::write_rewrites(&context, &mut site, &mut stages);
    redirect::write_redirects(&context, &mut stages);
    access::write_access_rules(&context, &mut stages);
    proxy::write_proxy_rules(&context, proxied, &mut stages);
    aliases::write_aliases(&context, &mut stages, pools);
    php::write_php_rules(&context, &mut site, &mut stages, pools);
    files::translate_error_documents(&context, &mut site);
    site.rules = stages.all();
    TranslatedHost {
        site,
        needs_empty_root: context.root.is_none(),
        client_authority: certificates.client_authority,
    }
}

fn set_options(table: &mut TomlTable, host: &ApacheHost<'_>, answers: &SiteHosting) {
    table.comment(host.place.to_string());
    answers.write(table);
    if let Some(line) = host.https_redirect {
        table.set("https_redirect", TomlValue::Bool(true), Some(&line.place));
    }
    // The site gets only what the old server specifies.
    table.set("recognise", TomlValue::Bool(false), None);
}

/// Returns a rule that denies access to clients outside a private network, if the host had a private address and the
/// site has a wider one.
fn private_access_rule(context: &HostContext<'_, '_>, answers: &SiteHosting) -> Option<TomlTable> {
    let host = context.host;
    let (old, new) = (&host.listens, &answers.listens_of_server);
    let rule = listen::private_access_rule(old, new, &host.place)?;
    if let Some(block) = host.block {
        let ledger = context.ledger;
        ledger.mark_different(block.id, listen::PRIVATE_REMARK);
    }
    Some(rule)
}
