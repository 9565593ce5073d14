use super::NamePattern::{HexAfter, Suffix};
use super::known::{DAY, SESSION};
use super::*;

fn wordpress() -> &'static Preset {
    Preset::find("wordpress").unwrap()
}

#[test]
fn cookies_named_per_site_are_known_by_their_form() {
    let hash = "0123456789abcdef0123456789abcdef";
    assert!(HexAfter("wordpress_").matches(format!("wordpress_{hash}").as_bytes()));
    assert!(!HexAfter("wordpress_").matches(b"wordpress_test_cookie"));
    assert!(HexAfter("").matches(hash.as_bytes()));
    assert!(Suffix("_session").matches(b"my_wiki_session"));
}

/// A prefix that also begins a word would treat an application's own cookie or parameter as tracking: its visitors
/// would get the anonymous page, or another page than they requested.
#[test]
fn names_of_applications_are_not_taken_for_tracking() {
    let among = |list: &[NamePattern], name: &str| list.iter().any(|n| n.matches(name.as_bytes()));
    for name in [
        "_gallery_session",
        "_gather",
        "_gate_session",
        "_hjemme_session",
        "_hj",
        "_ga_session",
        "_ga_",
        "__utmost",
        "_pk_user",
        "ajs_user_id",
        "_ym_session",
        "mtm_consent",
    ] {
        assert!(!among(TRACKING_COOKIES, name), "{name}");
    }
    for name in [
        "_ga",
        "_ga_1ABC2DEF3G",
        "_gat_gtag_UA_1_2",
        "_hjSessionUser_123",
        "_pk_id_1_1fff",
        "_ym_uid",
    ] {
        assert!(among(TRACKING_COOKIES, name), "{name}");
    }
    for name in [
        "pk_id",
        "pk_product",
        "trk_id",
        "mtm",
        "matomo_site",
        "piwik_id",
    ] {
        assert!(!among(TRACKING_PARAMETERS, name), "{name}");
    }
    for name in [
        "utm_source",
        "utm_expid",
        "pk_campaign",
        "mtm_kwd",
        "gad_source",
    ] {
        assert!(among(TRACKING_PARAMETERS, name), "{name}");
    }
}

#[test]
fn a_path_is_known_in_a_subfolder_and_by_whole_segments_only() {
    assert!(wordpress().excludes_path(b"/blog/wp-admin/post.php"));
    assert!(wordpress().excludes_path(b"/wp-login.php"));
    assert!(wordpress().excludes_path(b"/WP-Admin/"));
    assert!(!wordpress().excludes_path(b"/about-wp-admin/"));
}

#[test]
fn dashboard_link_writes_and_heartbeat_does_not() {
    let w = wordpress();
    assert!(w.get_writes(
        b"/wp-admin/post.php",
        Some(b"post=1&action=trash&_wpnonce=x")
    ));
    assert!(!w.get_writes(b"/wp-admin/edit.php", Some(b"paged=2")));
    assert!(w.get_writes(b"/wp-admin/post.php", Some(b"post=1&%5fwpnonce=x")));
    assert!(!w.get_writes(b"/", Some(b"action=x")));
    let ajax = b"/wp-admin/admin-ajax.php";
    assert!(w.is_noise(
        ajax,
        None,
        FormBody::UrlEncoded(b"interval=60&action=heartbeat")
    ));
    assert!(!w.is_noise(ajax, None, FormBody::UrlEncoded(b"action=inline-save")));
    assert!(w.is_noise(
        b"/",
        Some(b"wc-ajax=get_refreshed_fragments"),
        FormBody::Absent
    ));
    assert!(w.is_noise(b"/wp-login.php", None, FormBody::Absent));
    let vary = b"/wp-content/plugins/litespeed-cache/guest.vary.php";
    assert!(w.is_noise(vary, None, FormBody::Absent));
    let crawl = Some(&b"action=async_litespeed&litespeed_type=crawler"[..]);
    assert!(w.is_noise(ajax, crawl, FormBody::Absent));
    assert!(!w.is_noise(b"/wp-comments-post.php", None, FormBody::Absent));
}

#[test]
fn presets_know_sessions_and_limit_lifetimes() {
    for preset in PRESETS.iter() {
        assert!(preset.session_cookies.contains(&SESSION), "{}", preset.name);
        assert!((60..=DAY).contains(&preset.max_ttl));
        assert_eq!(Preset::find(preset.name).unwrap().name, preset.name);
    }
    assert_eq!(Preset::fallback().name, "php");
}

/// Checks cookies as they arrive in a request: those that identify a visitor, and those that do not.
#[track_caller]
fn check_cookies(preset: &str, somebody: &[&str], nobody: &[&str]) {
    let preset = Preset::find(preset).unwrap();
    let among = |list: &[NamePattern], line: &str| {
        let mut names = crate::cookie::names(line.as_bytes());
        names.any(|name| {
            let name = name.expect("a readable name");
            list.iter().any(|n| n.matches(&name))
        })
    };
    for line in somebody {
        assert!(among(preset.session_cookies, line), "{line}");
        assert!(!among(preset.harmless_cookies, line), "{line}");
        assert!(!among(TRACKING_COOKIES, line), "{line}");
    }
    for line in nobody {
        assert!(!among(preset.session_cookies, line), "{line}");
        let known = [preset.harmless_cookies, TRACKING_COOKIES];
        assert!(known.iter().any(|list| among(list, line)), "{line}");
    }
}

/// Checks URLs that are never cached, and similar ones that are.
#[track_caller]
fn check_urls(preset: &str, never: &[&str], cached: &[&str]) {
    let preset = Preset::find(preset).unwrap();
    let is_never = |url: &str| {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let mut names = query.split('&').map(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            crate::cookie::php_name(name.as_bytes()).unwrap_or_default()
        });
        preset.excludes_path(path.as_bytes())
            || names.any(|name| preset.never_parameters.iter().any(|n| n.matches(&name)))
    };
    for url in never {
        assert!(is_never(url), "{url}");
    }
    for url in cached {
        assert!(!is_never(url), "{url}");
    }
}

const HASH: &str = "0123456789abcdef0123456789abcdef";

/// wp_cookie_constants() in wp-includes/default-constants.php; wp_set_comment_cookies(); wp-admin/post.php
/// (`wp-saving-post`). The names are read as PHP reads them.
#[test]
fn wordpress_names_its_cookies_by_a_hash_of_its_address() {
    check_cookies(
        "wordpress",
        &[
            &format!("wordpress_logged_in_{HASH}=owner"),
            &format!("wordpress_sec_{HASH}=owner"),
            &format!("wordpress_{HASH}=owner"),
            &format!("wordpress%5F{HASH}=owner"),
            &format!("wp-postpass_{HASH}=x"),
            &format!("comment_author_{HASH}=Jo"),
            &format!("comment_author_email_{HASH}=jo%40example.org"),
            "wp-settings-1=editor",
            "wp-settings-time-1=1",
            "wp-saving-post=1-check",
        ],
        &["wordpress_test_cookie=WP%20Cookie%20check", "_ga_X1=GS1.1"],
    );
    check_urls(
        "wordpress",
        &[
            "/wp-admin/",
            "/blog/wp-login.php?redirect_to=x",
            "/?preview=true&p=3",
            "/?preview_id=3",
            "/wp-json/wp/v2/posts",
            "/?rest_route=/wp/v2/posts",
            "/?s=elephant",
            "/hello/?replytocom=4",
            "/?customize_changeset_uuid=x",
            "/xmlrpc.php",
        ],
        &["/", "/?p=1", "/hello/?cpage=2", "/cartography/", "/feed/"],
    );
}

/// class-wc-session-handler.php (`wp_woocommerce_session_`), class-wc-cart-session.php
/// (`woocommerce_items_in_cart`, `woocommerce_cart_hash`), wc-product-functions.php
/// (`woocommerce_recently_viewed`); Sourcebuster's names from its own source. WC_Cache_Helper's
/// prevent_caching() defines DONOTCACHEPAGE on basket, checkout and account whatever they are called.
#[test]
fn woocommerce_has_a_basket() {
    check_cookies(
        "wordpress",
        &[
            "woocommerce_items_in_cart=1",
            "woocommerce_cart_hash=x",
            &format!("wp_woocommerce_session_{HASH}=x%7C%7C1"),
            "woocommerce_recently_viewed=3",
        ],
        &[
            "sbjs_migrations=1; ",
            "sbjs_current_add=fd%3D2026",
            "__stripe_mid=x",
            "store_notice1f=hidden",
        ],
    );
    check_urls(
        "wordpress",
        &[
            "/cart/",
            "/checkout/order-received/7/",
            "/my-account/orders/",
            "/?add-to-cart=7",
            "/shop/?add_to_cart=7",
            "/?wc-ajax=get_refreshed_fragments",
            "/?wc-api=callback",
            "/?remove_item=x",
        ],
        &["/shop/", "/product/seat/", "/shop/?orderby=price"],
    );
    let wordpress = wordpress();
    assert!(wordpress.is_noise(b"/", Some(b"wc-ajax=add_to_cart"), FormBody::Absent));
    assert!(
        !wordpress.is_noise(b"/", Some(b"wc-ajax=checkout"), FormBody::Absent),
        "stock changes"
    );
}

/// The ways in which version 11.0 of WooCommerce changes a basket: the form of a product page
/// (`single-product/add-to-cart/*.php`), the form of the basket, and the Store API (`src/StoreApi/Routes`).
#[test]
fn filling_a_basket_changes_no_page_and_a_checkout_does() {
    let w = wordpress();
    let button = FormBody::Multipart {
        boundary: b"x",
        text: b"--x\r\nContent-Disposition: form-data; name=\"quantity\"\r\n\r\n1\r\n\
                --x\r\nContent-Disposition: form-data; name=\"add-to-cart\"\r\n\r\n12\r\n--x--\r\n",
    };
    let form = FormBody::UrlEncoded;
    let json = FormBody::NotInspected;
    for (path, form, is) in [
        (&b"/product/seat/"[..], button, true),
        (
            b"/shop/product/seat/",
            form(b"quantity=1&add-to-cart=12"),
            true,
        ),
        (b"/index.php/product/seat/", button, true),
        (
            b"/cart/",
            form(b"cart%5Bx%5D%5Bqty%5D=2&update_cart=Update+cart"),
            true,
        ),
        (b"/wp-json/wc/store/v1/cart/add-item", json, true),
        (b"/shop/wp-json/wc/store/v1/cart/items/0a1b", json, true),
        (b"/wp-json/wc/store/v1/checkout", json, false),
        (b"/wp-json/wc/store/v1/batch", json, false),
        (b"/wp-json/wc/store/v1/cartoons", json, false),
        (b"/wp-json/wc/v3/products/12", json, false),
        (b"/wp-comments-post.php", button, false),
        (
            b"/wp-admin/theme-editor.php",
            form(b"add-to-cart=12"),
            false,
        ),
        (b"/product/seat/", form(b"quantity=1"), false),
        (
            b"/checkout/",
            form(b"woocommerce_checkout_place_order=1"),
            false,
        ),
    ] {
        assert_eq!(w.is_noise(path, None, form), is, "{}", path.escape_ascii());
    }
    // A batch may contain a checkout, which shows in the database.
    assert!(w.changes_only_database(b"/wp-json/wc/store/v1/batch"));
    assert!(!w.changes_only_database(b"/wp-json/wc/store/v1/checkout"));
    assert!(!w.changes_only_database(b"/wp-json/batch/v1"));
    // The action runs only where WordPress chooses a page.
    let query = Some(&b"wc-ajax=add_to_cart"[..]);
    assert!(!w.is_noise(b"/wp-comments-post.php", query, FormBody::Absent));
}

/// CookieSessionProvider.php: `_session`, `Token`, `UserID`, `UserName` after the wiki's prefix; `forceHTTPS`,
/// `sessionJwt`. The page's inline script applies client preferences (ResourceLoader/clientHtml), to suit caches.
#[test]
fn mediawiki_puts_the_wikis_name_before_its_cookies() {
    check_cookies(
        "mediawiki",
        &[
            "wiki_session=x",
            "my_wikiToken=x",
            "wikiUserID=1",
            "wikiUserName=Keeper",
            "wikiLoggedOut=1",
            "forceHTTPS=true",
            "UseCDNCache=false",
            "cpPosIndex=1",
        ],
        &["wikimwuser-sessionId=x", "wikimwclientpreferences=x"],
    );
    check_urls(
        "mediawiki",
        &[
            "/index.php?title=X&action=edit",
            "/api.php?action=query",
            "/rest.php/v1/page/X",
            "/index.php?search=x",
        ],
        &[
            "/index.php/Main_Page",
            "/wiki/X",
            "/index.php?title=X&oldid=3",
            "/load.php?modules=startup",
        ],
    );
}

/// Core's SessionConfiguration::getName(): SESS, or SSESS over TLS, and 32 digits of a SHA-256;
/// user_cookie_save(): `Drupal.visitor.`, whose dots PHP makes underscores.
#[test]
fn drupal_names_its_session_by_a_hash_of_its_host() {
    check_cookies(
        "drupal",
        &[
            &format!("SESS{HASH}=x"),
            &format!("SSESS{HASH}=x"),
            "Drupal.visitor.name=Jo",
            "NO_CACHE=Y",
            "big_pipe_nojs=1",
        ],
        &["has_js=1"],
    );
    check_urls(
        "drupal",
        &[
            "/user/login",
            "/admin/content",
            "/de/user/3",
            "/batch?id=1",
            "/x?_wrapper_format=drupal_ajax",
            "/cart",
        ],
        &["/node/3", "/users", "/?page=2"],
    );
}

/// SessionServiceProvider: the cookie's name is an MD5 of secret and application; the "Joomla"
/// user plugin sets `joomla_user_state` for reverse proxies, the "Remember me" plugin its own.
#[test]
fn joomla_names_its_session_by_a_hash_of_its_secret() {
    check_cookies(
        "joomla",
        &[
            &format!("{HASH}=x"),
            "joomla_user_state=logged_in",
            &format!("joomla_remember_me_{HASH}=x.y"),
        ],
        &["_pk_id.1.2=x"],
    );
    check_urls(
        "joomla",
        &[
            "/administrator/",
            "/api/index.php/v1/content",
            "/index.php?option=com_users&task=user.login",
        ],
        &["/index.php?option=com_content&view=article&id=3"],
    );
    assert!(Preset::find("joomla").unwrap().advice.contains("session"));
}

/// phpbb/session.php: `_u`, `_k`, `_sid` after the configured name, which is `phpbb3_` and five letters at
/// installation; viewforum.php: `_track`. `sid` in a URL is a session.
#[test]
fn phpbb_may_be_told_another_name_for_its_cookies() {
    check_cookies(
        "phpbb",
        &[
            "phpbb3_abcde_u=1",
            "phpbb3_abcde_sid=x",
            "board_sid=x",
            "board_k=x",
            "board_track=x",
        ],
        &["_gid=1"],
    );
    check_urls(
        "phpbb",
        &[
            "/ucp.php?mode=login",
            "/forum/posting.php?mode=post",
            "/viewtopic.php?t=1&sid=x",
            "/adm/index.php",
            "/viewonline.php",
        ],
        &["/viewtopic.php?t=1", "/viewforum.php?f=2"],
    );
}

/// app/code/Magento/PageCache/etc/varnish6.vcl: /customer and /checkout bypass the cache; X-Magento-Vary contains what
/// the visitor's pages depend on.
#[test]
fn magento_tells_by_one_cookie_what_a_page_depends_on() {
    check_cookies(
        "magento",
        &[
            "X-Magento-Vary=x",
            "PHPSESSID=x",
            "private_content_version=x",
            "form_key=x",
            "mage-cache-sessid=true",
            "persistent_shopping_cart=x",
        ],
        &["_ga=1"],
    );
    check_urls(
        "magento",
        &[
            "/customer/section/load/",
            "/checkout/cart/",
            "/de/checkout/",
            "/graphql",
            "/rest/V1/products",
            "/catalogsearch/result/?q=x",
        ],
        &["/", "/women/tops.html?p=2", "/customers-say.html"],
    );
}

/// inc/init.php: DOKU_SESSION_NAME, DOKU_COOKIE; inc/common.php: get_doku_pref().
#[test]
fn dokuwiki_names_its_login_by_a_hash_of_its_directory() {
    check_cookies(
        "dokuwiki",
        &["DokuWiki=x", &format!("DW{HASH}=x"), "DOKU_PREFS=x"],
        &["_ga=1"],
    );
    check_urls(
        "dokuwiki",
        &["/doku.php?id=start&do=edit", "/doku.php?id=start&rev=1"],
        &["/doku.php?id=start", "/lib/exe/css.php?t=dokuwiki"],
    );
}

/// config/session.php: the application's name and `_session`, in Laravel 13 `-session`;
/// VerifyCsrfToken: `XSRF-TOKEN`; SessionGuard: `remember_web_` and a SHA-1.
#[test]
fn laravel_names_its_session_by_the_application() {
    check_cookies(
        "laravel",
        &[
            "laravel_session=x",
            "my_shop_session=x",
            "my-shop-session=x",
            "XSRF-TOKEN=x",
            "remember_web_59ba36=x",
            "laravel_maintenance=x",
        ],
        &["_fbp=x"],
    );
    check_urls(
        "laravel",
        &[
            "/livewire/update",
            "/sanctum/csrf-cookie",
            "/broadcasting/auth",
            "/telescope",
        ],
        &["/", "/products/3?page=2"],
    );
}

/// The default of framework.session.name is PHP's; security's remember_me: `REMEMBERME`; the stateless CSRF check sets
/// cookies that begin with `csrf-token`, with `__Host-` over TLS.
#[test]
fn symfony_uses_phps_own_session() {
    check_cookies(
        "symfony",
        &[
            "PHPSESSID=x",
            "REMEMBERME=x",
            "csrf-token_x=csrf-token",
            "__Host-csrf-token_x=csrf-token",
        ],
        &["_gcl_au=1"],
    );
    check_urls(
        "symfony",
        &[
            "/_profiler/x",
            "/_wdt/x",
            "/_fragment?_path=x",
            "/?_switch_user=jo",
        ],
        &["/", "/blog/1"],
    );
}

#[test]
fn where_an_application_forbids_caching_the_advice_names_its_setting() {
    for (preset, setting) in [
        ("mediawiki", "$wgUseCdn = true"),
        ("drupal", "\"Browser and proxy cache maximum age\""),
        ("laravel", "`Cache-Control: public`"),
        ("symfony", "#[Cache(public: true, maxage: 600)]"),
    ] {
        let advice = Preset::find(preset).unwrap().advice;
        assert!(advice.contains(setting), "{preset}: {advice}");
    }
    // These applications open a session for every visitor, which no setting prevents.
    for preset in ["joomla", "phpbb", "magento"] {
        let advice = Preset::find(preset).unwrap().advice;
        assert!(advice.contains("not stored"), "{preset}: {advice}");
    }
}

#[test]
fn noise_parameters_are_read_as_php_reads_them() {
    let w = Preset::find("wordpress").unwrap();
    let ajax: &[u8] = b"/blog/wp-admin/admin-ajax.php";
    let beats: &[u8] = b"action=heartbeat";
    for (path, query, form, noise) in [
        (ajax, None, FormBody::UrlEncoded(beats), true),
        (ajax, Some(beats), FormBody::Absent, true),
        (
            ajax,
            Some(beats),
            FormBody::UrlEncoded(b"interval=60"),
            true,
        ),
        (ajax, Some(beats), FormBody::NotInspected, false),
        (
            ajax,
            Some(beats),
            FormBody::UrlEncoded(b"action=delete-post"),
            false,
        ),
        (
            ajax,
            None,
            FormBody::UrlEncoded(b"action=heartbeat&action=delete-post"),
            false,
        ),
        (
            ajax,
            None,
            FormBody::UrlEncoded(b"action=heartbeat&%61ction=delete-post"),
            false,
        ),
        (
            ajax,
            None,
            FormBody::UrlEncoded(b"action[]=heartbeat"),
            false,
        ),
        (
            ajax,
            None,
            FormBody::UrlEncoded(b"action=heartbeat&a%00=1"),
            false,
        ),
        (
            b"/wp-comments-post.php",
            None,
            FormBody::UrlEncoded(beats),
            false,
        ),
        (
            b"/",
            Some(b"wc-ajax=add_to_cart"),
            FormBody::NotInspected,
            true,
        ),
        (
            b"/",
            None,
            FormBody::UrlEncoded(b"wc-ajax=add_to_cart"),
            false,
        ),
    ] {
        assert_eq!(w.is_noise(path, query, form), noise, "{query:?} {form:?}");
    }
}
