//! The applications that are recognised: by which files, and what each wants refused. The lists
//! follow each application's own `.htaccess` or its documentation for nginx.

use super::recognise::Application;

/// How an application shows itself and what it wants.
pub(super) struct Known {
    pub(super) application: Application,
    /// All of these exist …
    pub(super) files: &'static [&'static str],
    /// … below the directory that is served, or in one of these (then that is served; with `..`,
    /// the marks are beside the directory given).
    pub(super) web: &'static [&'static str],
    pub(super) front_controller: Option<&'static str>,
    /// Globs.
    pub(super) deny: &'static [&'static str],
}

/// Where composer projects keep what is public.
pub(super) const WEB_DIRECTORIES: &[&str] = &["public", "web", "docroot", "webroot"];

/// In order: the more particular first. `files` are looked for in the directory itself, `web` says
/// where below it the public part may lie.
pub(super) const KNOWN: &[Known] = &[
    Known {
        application: Application::WordPress,
        files: &["wp-login.php", "wp-includes"],
        web: &["."],
        front_controller: Some("/index.php"),
        // WordPress' hardening guide: no scripts among uploads, no direct call of library files
        // (ms-files.php serves uploads of old networks).
        deny: &[
            "/wp-content/uploads/**.ph*",
            "/wp-content/upgrade/**.ph*",
            "/wp-content/debug.log",
            "/wp-admin/includes/**",
            "/wp-includes/theme-compat/**",
            "/wp-includes/js/**.php",
            "/wp-config.php",
            "/wp-config-sample.php",
        ],
    },
    Known {
        application: Application::WordPress, // as composer lays it out (Bedrock)
        files: &["web/wp-config.php", "web/index.php"],
        web: &["web"],
        front_controller: Some("/index.php"),
        deny: &[
            "/app/uploads/**.ph*",
            "/wp/wp-admin/includes/**",
            "/wp-config.php",
        ],
    },
    Known {
        application: Application::MediaWiki,
        files: &["load.php", "api.php", "includes", "mw-config"],
        web: &["."],
        front_controller: None,
        deny: &[
            "/images/**.ph*",
            "/images/deleted/**",
            "/images/temp/**",
            "/cache/**",
            "/includes/**",
            "/languages/**",
            "/maintenance/**",
            "/tests/**",
            "/vendor/**",
            "/LocalSettings.php",
        ],
    },
    Known {
        application: Application::Laravel,
        files: &["artisan", "public/index.php"],
        web: &["public"],
        front_controller: Some("/index.php"),
        deny: &["/storage/**.ph*"],
    },
    Known {
        application: Application::Drupal,
        files: &["core/lib/Drupal.php", "index.php"],
        web: &[".", "web", "docroot"],
        front_controller: Some("/index.php"),
        // From its .htaccess: no scripts below these, no private files, no translations' sources.
        deny: &[
            "/sites/*/files/**.ph*",
            "/sites/*/private/**",
            "/sites/*/settings*",
            "/sites/*/services*.yml",
            "/vendor/**",
            "/modules/**.php",
            "/themes/**.php",
            "/profiles/**.php",
            "/core/includes/**",
            "/core/lib/**",
            "/core/scripts/**",
            "/core/tests/**",
            "/autoload.php",
            "**.po",
            "**.sh",
            "**.make",
            "**.profile",
            "**.xtmpl",
        ],
    },
    Known {
        application: Application::Symfony,
        files: &["bin/console", "public/index.php"],
        web: &["public"],
        front_controller: Some("/index.php"),
        deny: &["/bundles/**.ph*", "/uploads/**.ph*"],
    },
    Known {
        application: Application::Nextcloud,
        files: &["occ", "remote.php", "status.php", "lib/private"],
        web: &["."],
        front_controller: Some("/index.php"),
        deny: &[
            "/build/**",
            "/tests/**",
            "/config/**",
            "/lib/**",
            "/3rdparty/**",
            "/templates/**",
            "/data/**",
            "/autotest*",
            "/occ",
            "/issue*",
            "/indie*",
            "/db_*",
            "/console*",
        ],
    },
    Known {
        application: Application::Magento,
        files: &["bin/magento", "pub/index.php"],
        web: &["pub"],
        front_controller: Some("/index.php"),
        // From its nginx.conf.sample: what customers bought and sent, and scripts that are not to be
        // asked for.
        deny: &[
            "/media/customer/**",
            "/media/downloadable/**",
            "/media/import/**",
            "/media/custom_options/**",
            "/media/**.ph*",
            "/media/theme_customization/**.xml",
            "/errors/**.xml",
            "/errors/**.ph*",
            "/cron.php",
        ],
    },
    Known {
        application: Application::Joomla,
        files: &[
            "administrator/index.php",
            "libraries",
            "components",
            "index.php",
        ],
        web: &["."],
        front_controller: Some("/index.php"),
        deny: &[
            "/images/**.ph*",
            "/media/**.ph*",
            "/libraries/**.php",
            "/administrator/logs/**",
            "/administrator/cache/**",
            "/cache/**",
            "/cli/**",
            "/bin/**",
            "/logs/**",
            "/tmp/**",
            "/configuration.php",
        ],
    },
    Known {
        application: Application::PhpBb,
        files: &["viewtopic.php", "ucp.php", "phpbb"],
        web: &["."],
        front_controller: Some("/app.php"),
        deny: &[
            "/config.php",
            "/common.php",
            "/cache/**",
            "/files/**",
            "/store/**",
            "/includes/**",
            "/phpbb/**",
            "/vendor/**",
            "/images/avatars/upload/**",
        ],
    },
    Known {
        application: Application::PhpMyAdmin,
        files: &[
            "index.php",
            "libraries",
            "templates",
            "url.php",
            "show_config_errors.php",
        ],
        web: &["."],
        front_controller: None,
        deny: &[
            "/libraries/**",
            "/templates/**",
            "/setup/lib/**",
            "/vendor/**",
            "/sql/**",
        ],
    },
    Known {
        application: Application::DokuWiki,
        files: &["doku.php", "inc", "lib/exe"],
        web: &["."],
        front_controller: None,
        deny: &["/data/**", "/conf/**", "/bin/**", "/inc/**", "/vendor/**"],
    },
];
