//! What is known of applications: cookies that mean somebody, paths and parameters that are never
//! cached, requests that write. Data, read by `policy` and `key`. The sources are the applications'
//! own (core code, their Varnish files) and the lists of the caches that serve most of them
//! (Batcache, LiteSpeed, Cloudflare APO, Wikimedia's Varnish); `preset_tests` names file or function
//! for each.
//!
//! Names are matched after they were read as PHP reads them, paths as the router reads them: decoded and
//! cleaned. Segments are looked for anywhere in the path, so that an application in a subfolder is meant
//! as well.

use crate::cookie::php_name;

/// A pattern for names of cookies and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// Exactly this name.
    Is(&'static str),
    /// All names that begin with this.
    Starts(&'static str),
    /// All names that end with this.
    Ends(&'static str),
    /// 32 hexadecimal digits behind this: how Joomla, Drupal and WordPress name cookies per site.
    Hex(&'static str),
    /// Capital letters and digits behind this: the number of an account (`_ga_1ABC2DEF3G`). Not
    /// `_gallery_session`, which is an application's.
    Account(&'static str),
}

impl NamePattern {
    /// Whether the pattern matches `name`.
    pub fn matches(self, name: &[u8]) -> bool {
        match self {
            NamePattern::Is(is) => name == is.as_bytes(),
            NamePattern::Starts(start) => name.starts_with(start.as_bytes()),
            NamePattern::Ends(end) => name.ends_with(end.as_bytes()),
            NamePattern::Hex(start) => name
                .strip_prefix(start.as_bytes())
                .is_some_and(|rest| rest.len() == 32 && rest.iter().all(u8::is_ascii_hexdigit)),
            NamePattern::Account(start) => {
                name.strip_prefix(start.as_bytes()).is_some_and(|rest| {
                    let capital = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit();
                    !rest.is_empty() && rest.iter().all(capital)
                })
            }
        }
    }
}

use NamePattern::{Account, Ends, Hex, Is, Starts};

/// What is known of an application.
#[derive(Debug)]
pub struct Preset {
    /// The name of the preset, as `cache_preset` gives it.
    pub name: &'static str,
    /// Cookies of a login, a session, a basket, a message for one visitor.
    pub session_cookies: &'static [NamePattern],
    /// Cookies that change no page.
    pub harmless_cookies: &'static [NamePattern],
    /// Segments of paths never cached.
    pub never_segments: &'static [&'static str],
    /// Parameters that keep a request from the cache.
    pub never_parameters: &'static [NamePattern],
    /// GET requests below this segment that carry one of these parameters write.
    pub writing_gets: &'static [(&'static str, &'static [&'static str])],
    /// Writes that change no page: parameter and value, in the query or a form.
    pub noise: &'static [NoiseParameter],
    /// Segments of paths where a write changes no page.
    pub noise_segments: &'static [&'static str],
    /// Longest lifetime of a page, in seconds, so that nonces in pages do not expire first.
    pub max_ttl: u64,
    /// What an administrator may have to set in the application.
    pub advice: &'static str,
}

/// The cookie of PHP's own sessions.
const SESSION: NamePattern = Is("PHPSESSID");
const DAY: u64 = 86_400;

/// Cookies of analytics and advertising, read by scripts in the browser. Consent cookies are not
/// here: some applications render by them. Beginnings stand here only if they name a product and no
/// word begins so: an application's own cookie that is taken for one of these would be ignored.
pub const TRACKING_COOKIES: &[NamePattern] = &[
    Is("_ga"),
    Account("_ga_"),
    Is("_gid"),
    Is("_gat"),
    Starts("_gat_gtag_"),
    Starts("_gat_UA"),
    Is("__utma"),
    Is("__utmb"),
    Is("__utmc"),
    Is("__utmt"),
    Is("__utmv"),
    Is("__utmz"),
    Is("_gcl_ag"),
    Is("_gcl_au"),
    Is("_gcl_aw"),
    Is("_gcl_dc"),
    Is("_gcl_gb"),
    Is("_gcl_gs"),
    Is("_fbp"),
    Is("_fbc"),
    Is("__gads"),
    Is("__gpi"),
    Is("_hjid"),
    Is("_hjFirstSeen"),
    Is("_hjTLDTest"),
    Is("_hjCookieTest"),
    Starts("_hjSession_"),
    Starts("_hjSessionUser_"),
    Starts("_hjIncludedInSessionSample"),
    Starts("_hjIncludedInPageviewSample"),
    Starts("_hjAbsoluteSessionInProgress"),
    Is("_clck"),
    Is("_clsk"),
    Is("__qca"),
    Is("__atuvc"),
    Is("__atuvs"),
    Is("has_js"),
    Is("_pk_id"),
    Is("_pk_ses"),
    Is("_pk_ref"),
    Is("_pk_cvar"),
    Is("_pk_hsr"),
    Starts("_pk_id_"),
    Starts("_pk_ses_"),
    Starts("_pk_ref_"),
    Starts("_pk_cvar_"),
    Starts("_pk_hsr_"),
    Starts("_pk_testcookie"),
    Is("__cf_bm"),
    Is("cf_clearance"),
    Is("_uetsid"),
    Is("_uetvid"),
    Is("_ttp"),
    Is("_tt_enable_cookie"),
    Is("_scid"),
    Is("_pin_unauth"),
    Is("_rdt_uuid"),
    Is("_ym_uid"),
    Is("_ym_d"),
    Is("_ym_isad"),
    Is("_ym_visorc"),
    Is("ajs_anonymous_id"),
    Is("__hstc"),
    Is("__hssc"),
    Is("__hssrc"),
    Is("hubspotutk"),
    // Stripe's script counts visitors against fraud on every page it is on.
    Is("__stripe_mid"),
    Is("__stripe_sid"),
];

/// Parameters of links from advertising and newsletters; the page is the same without them. Beginnings
/// as above: a parameter of the application that is left out gives its reader another page.
pub const TRACKING_PARAMETERS: &[NamePattern] = &[
    Starts("utm_"),
    Is("mtm_campaign"),
    Is("mtm_cid"),
    Is("mtm_content"),
    Is("mtm_group"),
    Is("mtm_keyword"),
    Is("mtm_kwd"),
    Is("mtm_medium"),
    Is("mtm_placement"),
    Is("mtm_source"),
    Is("matomo_campaign"),
    Is("matomo_cid"),
    Is("matomo_content"),
    Is("matomo_group"),
    Is("matomo_keyword"),
    Is("matomo_kwd"),
    Is("matomo_medium"),
    Is("matomo_placement"),
    Is("matomo_source"),
    Is("pk_campaign"),
    Is("pk_cid"),
    Is("pk_content"),
    Is("pk_keyword"),
    Is("pk_kwd"),
    Is("pk_medium"),
    Is("pk_source"),
    Is("piwik_campaign"),
    Is("piwik_keyword"),
    Is("piwik_kwd"),
    Is("hsa_acc"),
    Is("hsa_ad"),
    Is("hsa_cam"),
    Is("hsa_grp"),
    Is("hsa_kw"),
    Is("hsa_mt"),
    Is("hsa_net"),
    Is("hsa_src"),
    Is("hsa_tgt"),
    Is("hsa_ver"),
    Is("gad_source"),
    Is("gad_campaignid"),
    Is("mc_cid"),
    Is("mc_eid"),
    Is("fbclid"),
    Is("gclid"),
    Is("gclsrc"),
    Is("dclid"),
    Is("gbraid"),
    Is("wbraid"),
    Is("msclkid"),
    Is("igshid"),
    Is("srsltid"),
    Is("ttclid"),
    Is("twclid"),
    Is("li_fat_id"),
    Is("yclid"),
    Is("_ga"),
    Is("_gl"),
    Is("_ke"),
    Is("_kx"),
    Is("_branch_match_id"),
    Is("epik"),
    Is("s_kwcid"),
    Is("mkt_tok"),
    Is("ck_subscriber_id"),
    Is("fb_action_ids"),
    Is("fb_action_types"),
    Is("fb_source"),
    // What Magento's Varnish file and Cloudflare's APO leave out beside these.
    Is("_bta_c"),
    Is("_bta_tid"),
    Is("trk_contact"),
    Is("trk_module"),
    Is("trk_msg"),
    Is("trk_sid"),
    Is("dm_i"),
    Is("ef_id"),
    Is("zanpid"),
    Is("ScCid"),
    Is("sb_referer_host"),
    Is("redirect_log_mongo_id"),
    Is("redirect_mongo_id"),
    Is("usqp"),
    Is("_hsenc"),
    Is("_hsmi"),
    Is("dicbo"),
    Is("tblci"),
    Is("sscid"),
];

const NOTHING: Preset = Preset {
    name: "",
    session_cookies: &[SESSION],
    harmless_cookies: &[],
    never_segments: &[],
    never_parameters: &[],
    writing_gets: &[],
    noise: &[],
    noise_segments: &[],
    max_ttl: DAY,
    advice: "",
};

/// All presets. The last one, `php`, is for everything else.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "wordpress",
        session_cookies: &[
            SESSION,
            Starts("wordpress_logged_in"),
            Starts("wordpress_sec"),
            Hex("wordpress_"),
            Starts("wordpressuser_"),
            Starts("wordpresspass_"),
            Starts("wordpress_rec_"),
            Starts("wp-postpass"),
            Starts("wp_postpass"),
            Starts("comment_author"),
            Starts("wp-settings-"),
            Is("wp-saving-post"),
            Is("wordpress_no_cache"),
            Starts("woocommerce_"),
            Starts("wp_woocommerce_session_"),
            Starts("edd_"),
            Starts("yith_"),
            Starts("wpsc_"),
            Starts("it_exchange_session_"),
            Is("mp_session"),
            Starts("bookly"),
            Starts("ecwid"),
        ],
        // Sourcebuster, by which WooCommerce attributes orders: set by a script for every visitor, read
        // by one at the checkout. A notice put away is hidden by a script, too.
        harmless_cookies: &[
            Is("wordpress_test_cookie"),
            Starts("sbjs_"),
            Starts("store_notice"),
        ],
        never_segments: &[
            "wp-admin",
            "wp-login.php",
            "wp-cron.php",
            "xmlrpc.php",
            "wp-json",
            "wp-signup.php",
            "wp-activate.php",
            "wp-comments-post.php",
            "wp-trackback.php",
            "cart",
            "checkout",
            "my-account",
            "addons",
            "edd-api",
        ],
        never_parameters: &[
            Starts("preview"),
            Is("p_preview"),
            Is("rest_route"),
            Starts("customize_"),
            Is("s"),
            Is("add-to-cart"),
            Is("add_to_cart"),
            Is("remove_item"),
            Is("undo_item"),
            Is("removed_item"),
            Is("download_file"),
            Starts("wc-"),
            Starts("wc_"),
            Is("_wpnonce"),
            Is("replytocom"),
            Is("doing_wp_cron"),
            Is("elementor-preview"),
            Is("unapproved"),
            Is("moderation-hash"),
            Is("et_fb"),
            Is("fl_builder"),
            Is("loggedout"),
            Is("edd_action"),
        ],
        writing_gets: &[
            ("wp-admin", &["_wpnonce", "action"]),
            ("wp-cron.php", &["doing_wp_cron"]),
        ],
        noise: &[
            NoiseParameter {
                segment: "admin-ajax.php",
                name: "action",
                of: Of::Request,
                values: &[
                    "heartbeat",
                    "wp-compression-test",
                    "dashboard-widgets",
                    "closed-postboxes",
                ],
            },
            NoiseParameter {
                segment: "",
                name: "wc-ajax",
                of: Of::Query,
                values: &[
                    "get_refreshed_fragments",
                    "add_to_cart",
                    "remove_from_cart",
                    "apply_coupon",
                    "remove_coupon",
                    "update_order_review",
                    "update_shipping_method",
                    "get_cart_totals",
                ],
            },
        ],
        noise_segments: &["wp-login.php"],
        // Nonces are good for 12 to 24 hours; plugins keep pages 10 for that reason.
        max_ttl: 10 * 3600,
        ..NOTHING
    },
    Preset {
        name: "mediawiki",
        session_cookies: &[
            SESSION,
            Ends("_session"),
            Ends("Token"),
            Ends("LoggedOut"),
            Is("forceHTTPS"),
            Ends("UserID"),
            Ends("UserName"),
            Is("sessionJwt"),
            Ends("PostEditRevision"),
            Ends("BlockID"),
            Is("UseCDNCache"),
            Is("UseDC"),
            Starts("cpPosIndex"),
        ],
        // The last are applied by a script in the page, for the sake of caches.
        harmless_cookies: &[
            Ends("mwuser-sessionId"),
            Ends("stopMobileRedirect"),
            Ends("mwclientpreferences"),
        ],
        never_segments: &["api.php", "rest.php"],
        never_parameters: &[Is("action"), Is("wpSearch"), Is("search"), Is("returnto")],
        advice: "MediaWiki says `private` on every page unless $wgUseCdn = true; set it, with $wgCdnMaxAge as the longest time.",
        ..NOTHING
    },
    Preset {
        name: "drupal",
        session_cookies: &[
            SESSION,
            Hex("SESS"),
            Hex("SSESS"),
            // Pressflow's and the module Cookie Cache Bypass'.
            Is("NO_CACHE"),
            Starts("Drupal_visitor_"),
            Is("big_pipe_nojs"),
        ],
        never_segments: &["admin", "user", "cron", "batch", "cart", "checkout"],
        never_parameters: &[Is("token"), Is("_wrapper_format"), Is("ajax_form")],
        advice: "Drupal says `private` until a maximum age is set: Configuration, Performance, \"Browser and proxy cache maximum age\".",
        ..NOTHING
    },
    Preset {
        name: "joomla",
        session_cookies: &[
            SESSION,
            Hex(""),
            Is("joomla_user_state"),
            Starts("joomla_remember_me_"),
        ],
        never_segments: &["administrator", "api"],
        never_parameters: &[Is("task")],
        advice: "Joomla starts a session for every visitor; its pages are not stored unless a plugin such as LiteSpeed's for Joomla stops that.",
        ..NOTHING
    },
    Preset {
        name: "phpbb",
        // The administrator may name them otherwise, but for the end.
        session_cookies: &[
            SESSION,
            Starts("phpbb"),
            Ends("_sid"),
            Ends("_u"),
            Ends("_k"),
            Ends("_track"),
        ],
        never_segments: &[
            "posting.php",
            "ucp.php",
            "mcp.php",
            "adm",
            "memberlist.php",
            "search.php",
            "cron.php",
            "report.php",
            "viewonline.php",
        ],
        never_parameters: &[Is("sid"), Is("hash")],
        advice: "phpBB starts a session for every visitor and says `private`; its pages are not stored.",
        ..NOTHING
    },
    Preset {
        name: "magento",
        session_cookies: &[
            SESSION,
            Is("X-Magento-Vary"),
            Is("private_content_version"),
            Is("form_key"),
            Starts("mage-"),
            Is("persistent_shopping_cart"),
            Is("admin"),
        ],
        never_segments: &[
            "customer",
            "checkout",
            "admin",
            "sales",
            "wishlist",
            "rest",
            "graphql",
            "catalogsearch",
        ],
        noise_segments: &["customer", "checkout", "wishlist"],
        advice: "Magento opens a session for every page and sets its cookie, relying on a cache that throws it away; its pages are not stored.",
        ..NOTHING
    },
    Preset {
        name: "laravel",
        session_cookies: &[
            SESSION,
            // Both: Laravel 13 writes its default name with `-`.
            Ends("_session"),
            Ends("-session"),
            Is("XSRF-TOKEN"),
            // Passport's, and MaintenanceModeBypassCookie's.
            Is("laravel_token"),
            Is("laravel_maintenance"),
            Starts("remember_"),
        ],
        never_segments: &[
            "livewire",
            "sanctum",
            "broadcasting",
            "telescope",
            "horizon",
            "nova-api",
            "_debugbar",
            "_ignition",
        ],
        advice: "Laravel starts a session on every route of the `web` group; move routes without one to a group of their own and let them say `Cache-Control: public`.",
        ..NOTHING
    },
    Preset {
        name: "symfony",
        session_cookies: &[
            SESSION,
            Is("REMEMBERME"),
            // The profiler's `sf_redirect`.
            Starts("sf_"),
            Starts("csrf-token"),
            Starts("__Host-csrf-token"),
        ],
        never_segments: &["_profiler", "_wdt", "_fragment"],
        // SecurityBundle's switch_user: to be somebody else.
        never_parameters: &[Is("_switch_user")],
        advice: "Symfony says `no-cache, private` unless a controller says otherwise: #[Cache(public: true, maxage: 600)], and `_stateless: true` on the route.",
        ..NOTHING
    },
    Preset {
        name: "dokuwiki",
        // The session's own name, and the login that is remembered.
        session_cookies: &[SESSION, Is("DokuWiki"), Hex("DW"), Is("DOKU_PREFS")],
        never_segments: &["install.php"],
        never_parameters: &[Is("do"), Is("sectok"), Is("rev")],
        advice: "DokuWiki opens a session for every visitor; its pages are not stored.",
        ..NOTHING
    },
    Preset {
        name: "php",
        advice: "A script that starts a session says `no-store` by itself; all others are stored for `cache_ttl` unless they say otherwise.",
        ..NOTHING
    },
];

/// A write that changes no page: what a parameter says.
#[derive(Debug)]
pub struct NoiseParameter {
    /// Only below this segment of the path; empty: anywhere.
    pub segment: &'static str,
    /// The parameter's name.
    pub name: &'static str,
    /// Where the application looks for it.
    pub of: Of,
    /// The values with which the request changes no page.
    pub values: &'static [&'static str],
}

/// Where an application looks for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// In `$_GET`, the query's parameters.
    Query,
    /// `$_REQUEST`: the form's goes before the query's.
    Request,
}

/// The form a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormBody<'a> {
    /// None, and no body of any kind.
    Absent,
    /// `application/x-www-form-urlencoded`
    Read(&'a [u8]),
    /// A body that was not looked into.
    Unread,
}

impl NoiseParameter {
    fn is_meant(&self, query: &[u8], form: FormBody<'_>) -> bool {
        let value = match (self.of, form) {
            (Of::Query, _) | (Of::Request, FormBody::Absent) => self.last(query),
            (Of::Request, FormBody::Unread) => return false,
            (Of::Request, FormBody::Read(text)) => match self.last(text) {
                Some(None) => self.last(query),
                said => said,
            },
        };
        matches!(value, Some(Some(value)) if self.values.iter().any(|v| v.as_bytes() == value))
    }

    /// What the parameter says, as PHP reads the text: the last one counts. The outer none: it is
    /// spelt in another way, and what PHP makes of it is not looked into.
    fn last<'t>(&self, text: &'t [u8]) -> Option<Option<&'t [u8]>> {
        let mut last = None;
        for pair in text.split(|b| *b == b'&') {
            let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
            if php_name(&pair[..end]).ok()? == self.name.as_bytes() {
                if pair[..end] != *self.name.as_bytes() {
                    // `action[]`, `%61ction`: an array, or somebody's trick.
                    return None;
                }
                last = Some(pair.get(end + 1..).unwrap_or_default());
            }
        }
        Some(last)
    }
}

impl Preset {
    /// The preset with this name, if there is one.
    pub fn find(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The one for everything else.
    pub fn plain() -> &'static Preset {
        &PRESETS[PRESETS.len() - 1]
    }

    /// Whether the path is one the application never wants cached.
    pub fn never_path(&self, path: &[u8]) -> bool {
        has_segment(path, self.never_segments)
    }

    /// Whether a request that would be a write (any method but GET, HEAD, OPTIONS, TRACE) changes no
    /// page.
    pub fn is_noise(&self, path: &[u8], query: Option<&[u8]>, form: FormBody<'_>) -> bool {
        let query = query.unwrap_or_default();
        has_segment(path, self.noise_segments)
            || self.noise.iter().any(|noise| {
                let here = noise.segment.is_empty() || has_segment(path, &[noise.segment]);
                here && noise.is_meant(query, form)
            })
    }

    /// Whether a GET writes all the same.
    pub fn get_writes(&self, path: &[u8], query: Option<&[u8]>) -> bool {
        let Some(query) = query else { return false };
        self.writing_gets.iter().any(|(segment, parameters)| {
            has_segment(path, &[segment])
                && query.split(|b| *b == b'&').any(|pair| {
                    let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
                    // What cannot be read might be one of them.
                    php_name(&pair[..end]).map_or(true, |name| {
                        parameters.iter().any(|p| p.as_bytes() == &*name)
                    })
                })
        })
    }
}

fn has_segment(path: &[u8], segments: &[&str]) -> bool {
    !segments.is_empty()
        && path.split(|b| *b == b'/').any(|part| {
            segments
                .iter()
                .any(|segment| part.eq_ignore_ascii_case(segment.as_bytes()))
        })
}

#[cfg(test)]
#[path = "preset_tests.rs"]
mod tests;
