use super::*;
use howdah_config::arguments::ServeArguments;
use howdah_config::{self, ConfigSource, ServeSettings, Validation};

/// Applications, with the files by which they are recognised and other relevant files.
const TREES: &[(&str, &[(&str, &str)])] = &[
    ("wordpress", &[("wp-login.php", ""), ("wp-includes/a", "")]),
    (
        "wordpress-with-rules",
        &[
            ("wp-login.php", ""),
            ("wp-includes/a", ""),
            (
                ".htaccess",
                "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . /index.php [L]\n",
            ),
        ],
    ),
    (
        "bedrock",
        &[("web/wp-config.php", ""), ("web/index.php", "")],
    ),
    (
        "mediawiki",
        &[
            ("load.php", ""),
            ("includes/a", ""),
            ("languages/a", ""),
            ("resources/a", ""),
        ],
    ),
    ("laravel", &[("artisan", ""), ("public/index.php", "")]),
    (
        "laravel-beside-rules",
        &[
            ("artisan", ""),
            ("public/index.php", ""),
            (
                ".htaccess",
                "RewriteEngine On\nRewriteRule ^(.*)$ public/$1 [L]\n",
            ),
        ],
    ),
    (
        "laravel-at-the-root",
        &[
            ("artisan", ""),
            ("bootstrap/app.php", ""),
            ("index.php", ""),
            ("public/index.php", ""),
        ],
    ),
    ("symfony", &[("bin/console", ""), ("public/index.php", "")]),
    (
        "drupal",
        &[("web/core/lib/Drupal.php", ""), ("web/index.php", "")],
    ),
    ("framework", &[("src/a.php", ""), ("webroot/index.php", "")]),
    (
        "framework-with-rules",
        &[
            ("public/index.php", ""),
            ("public/.htaccess", "FallbackResource /index.php\n"),
        ],
    ),
    (
        "front-controller",
        &[
            ("index.php", ""),
            (".htaccess", "FallbackResource /index.php\n"),
        ],
    ),
    ("plain", &[("index.php", ""), ("b.php", "")]),
    (
        "rules-in-a-folder",
        &[
            ("index.php", ""),
            ("api/users.php", ""),
            (
                "api/.htaccess",
                "RewriteEngine On\nRewriteRule ^users/([0-9]+)$ users.php?id=$1 [L]\n",
            ),
        ],
    ),
    ("files", &[("index.html", "")]),
    (
        "firm",
        &[
            ("index.html", ""),
            ("blog/wp-login.php", ""),
            ("blog/wp-includes/a", ""),
        ],
    ),
    ("a \"quoted\" name", &[("index.php", "")]),
];

fn tree(directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn arguments(directory: &Path) -> InitArguments {
    InitArguments {
        dir: directory.to_owned(),
        file: None,
        force: false,
    }
}

/// Returns the settings as text; equal settings have equal texts.
fn served(settings: Result<ServeSettings, Vec<String>>) -> Vec<String> {
    let settings = settings.unwrap_or_else(|mistakes| panic!("{}", mistakes.join("\n")));
    vec![
        format!("{:?}", settings.sites),
        format!("{:?}", settings.pools),
        format!("{:?}", settings.listen),
        format!("{:?}", settings.log),
        format!("{:?}", settings.server),
    ]
}

#[test]
fn init_configuration_serves_the_same_as_serve_without_it() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, files) in TREES {
        let directory = scratch.path().join(name);
        tree(&directory, files);
        let plan = InitPlan::of(&arguments(&directory)).unwrap();
        let without = ServeArguments {
            dir: Some(directory.clone()),
            user: plan.user.chosen.then(|| plan.user.name.clone()),
            ..ServeArguments::default()
        };
        let without = served(howdah_config::load(&without, None, Validation::Trusted).settings);
        let source = ConfigSource::from_text(
            directory.join("howdah.toml").display().to_string(),
            plan.configuration.clone(),
        );
        let with = howdah_config::load(
            &ServeArguments::default(),
            Some(&source),
            Validation::Trusted,
        )
        .settings;
        assert_eq!(served(with), without, "{name}\n{}", plan.configuration);
    }
}

#[test]
fn init_names_the_root_relative_to_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("shop");
    tree(&directory, &[("artisan", ""), ("public/index.php", "")]);
    let root = |directory: &Path, file: Option<PathBuf>| {
        let arguments = InitArguments {
            file,
            ..arguments(directory)
        };
        let plan = InitPlan::of(&arguments).unwrap();
        let line = plan.configuration.lines().find(|l| l.starts_with("root"));
        line.unwrap().to_owned()
    };
    assert_eq!(root(&directory, None), "root = \"public\"");
    assert_eq!(root(&directory.join("public"), None), "root = \".\"");
    let above = scratch.path().join("shop.toml");
    assert_eq!(root(&directory, Some(above)), "root = \"shop/public\"");
    let elsewhere = tempfile::tempdir().unwrap();
    let whole = format!("root = \"{}\"", directory.join("public").display());
    assert_eq!(
        root(&directory, Some(elsewhere.path().join("shop.toml"))),
        whole
    );
}

#[test]
fn init_unit_makes_the_project_writable_from_any_of_its_directories() {
    let scratch = tempfile::tempdir().unwrap();
    let project = scratch.path().join("shop");
    tree(&project, &[("artisan", ""), ("public/index.php", "")]);
    tree(scratch.path(), &[("plain/site/index.php", "")]);
    let writes = |directory: &Path, site: &Path| {
        let written = format!("ReadWritePaths={}", site.display());
        let place = InitPlan::of(&arguments(directory)).unwrap().reader;
        match place {
            ConfigurationReader::Server(_, text) => {
                assert!(text.lines().any(|line| line == written), "{text}")
            }
            // The unit of the package names its directories itself.
            ConfigurationReader::Packaged => {}
            ConfigurationReader::Included(_) => panic!("a part of {}", directory.display()),
        }
    };
    writes(&project, &project);
    writes(&project.join("public"), &project);
    let plain = scratch.path().join("plain/site");
    writes(&plain, &plain);
}

#[test]
fn init_writes_nothing_that_clients_could_read() {
    let scratch = tempfile::tempdir().unwrap();
    tree(scratch.path(), &[("index.php", "")]);
    let plan = |file: &str| {
        InitPlan::of(&InitArguments {
            file: Some(scratch.path().join(file)),
            ..arguments(scratch.path())
        })
    };
    let why = plan("shop.toml").err().unwrap();
    assert!(why.contains("clients could read "), "{why}");
    assert!(plan("conf/shop.toml").is_err());
    assert!(plan("howdah.toml").is_ok());
}

#[test]
fn init_above_several_applications_asks_to_choose_one() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["laravel", "wordpress", "files"] {
        let (_, files) = TREES.iter().find(|(tree, _)| *tree == name).unwrap();
        tree(&scratch.path().join(name), files);
    }
    let why = InitPlan::of(&arguments(scratch.path())).err().unwrap();
    let at = |name: &str| scratch.path().join(name).display().to_string();
    let expected = format!(
        "there is no application in {} itself, but there are applications below it; choose one:\n  \
         howdah init {}   # Laravel\n  \
         howdah init {}   # WordPress",
        scratch.path().display(),
        at("laravel"),
        at("wordpress")
    );
    assert_eq!(why, expected);
    // If there are pages at the top, the directory is a site.
    tree(scratch.path(), &[("index.html", "")]);
    assert!(InitPlan::of(&arguments(scratch.path())).is_ok());
}

#[test]
fn init_in_sites_d_writes_a_site_of_the_including_server() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("shop");
    tree(&directory, &[("index.php", "")]);
    let plan = InitPlan::of(&InitArguments {
        file: Some(scratch.path().join("sites.d/shop.toml")),
        ..arguments(&directory)
    });
    let plan = plan.unwrap();
    assert!(
        plan.configuration.starts_with("[[site]]\n"),
        "{}",
        plan.configuration
    );
    let ConfigurationReader::Included(main) = plan.reader else {
        panic!("a server of its own");
    };
    assert_eq!(main, scratch.path().join("howdah.toml"));
}
