//! phpMyAdmin as a database's owner uses it, who logs in, imports a table, browses, searches, edits and exports it, and
//! logs out. It is Debian's package, with a private MariaDB.

use std::path::Path;

use howdah_tests::browser::{Browser, Page};
use howdah_tests::forms::{File, Form};
use howdah_tests::http::get;
use howdah_tests::mariadb::Mariadb;
use howdah_tests::rig::{Server, ServerKind, Site};
use howdah_tests::scratch::{Scratch, copy_tree};

struct Admin {
    server: Box<dyn Server>,
    browser: Browser,
    token: String,
    mariadb: Mariadb,
    _scratch: Scratch,
}

#[test]
fn phpmyadmin_from_logging_in_to_logging_out() {
    let mut admin = Admin::prepare();
    admin.log_in();
    admin.import();
    admin.browse_and_search();
    admin.edit();
    admin.export();
    admin.log_out();
}

impl Admin {
    fn prepare() -> Self {
        let mariadb = Mariadb::start();
        mariadb.create("caravan", "keeper", "lion & lamb");
        let scratch = Scratch::new("phpmyadmin");
        let root = scratch.join("site");
        copy_tree(Path::new("/usr/share/phpmyadmin"), &root);
        let temporary = scratch.writable_dir("tmp");
        let config = scratch.write(
            "config.inc.php",
            format!(
                "<?php\n$cfg['blowfish_secret'] = '0123456789abcdef0123456789abcdef';\n\
                 $cfg['Servers'][1] = ['auth_type' => 'cookie', 'host' => 'localhost', 'socket' => '{}', 'AllowNoPassword' => false];\n\
                 $cfg['TempDir'] = '{}';\n$cfg['VersionCheck'] = false;\n$cfg['SendErrorReports'] = 'never';\n",
                mariadb.socket().display(),
                temporary.display()
            ),
        );
        // The package looks for its configuration under /etc and for its temporary files under /var/lib, which belong
        // to the machine, so the copy is changed to use the test's own.
        let paths = root.join("libraries/vendor_config.php");
        let text = std::fs::read_to_string(&paths).expect("the package has vendor_config.php");
        let ours = text
            .replace(
                "'/etc/phpmyadmin/config.inc.php'",
                &format!("'{}'", config.display()),
            )
            .replace(
                "'/var/lib/phpmyadmin/tmp/'",
                &format!("'{}/'", temporary.display()),
            );
        assert_ne!(text, ours, "the package contains other paths than expected");
        std::fs::write(&paths, ours).expect("the copy is writable");
        let server = ServerKind::chosen().start(&Site::new(root).ini("display_errors", "Off"));
        let browser = Browser::new(server.address());
        Admin {
            server,
            browser,
            token: String::new(),
            mariadb,
            _scratch: scratch,
        }
    }

    fn log_in(&mut self) {
        let wrong = [("pma_username", "keeper"), ("pma_password", "wrong")];
        self.browser
            .fill("/index.php", "login_form", &wrong)
            .shows("Cannot log in to the MySQL server");
        let right = [("pma_username", "keeper"), ("pma_password", "lion & lamb")];
        let home = self.browser.fill("/index.php", "login_form", &right);
        home.shows("keeper@localhost");
        self.token = home
            .form("collation-connection")
            .value("token")
            .expect("forms have a token")
            .to_owned();
        let script = get(self.server.address(), "/js/dist/common.js");
        assert!(
            script.status() == 200
                && script
                    .header("Content-Type")
                    .is_some_and(|kind| kind.contains("javascript")),
            "{:?}",
            script.head
        );
    }

    /// Returns a form made by the test for one of phpMyAdmin's routes, whose pages build their forms with scripts.
    fn form(&self, route: &str) -> Form {
        Form {
            action: format!("/index.php?route={route}"),
            method: "POST".into(),
            ..Form::default()
        }
        .set("token", &self.token)
        .set("db", "caravan")
        .set("server", "1")
    }

    /// Sends a form as the page's scripts do, and returns the message of the JSON response.
    #[track_caller]
    fn ajax(&mut self, form: &Form) -> String {
        let page = self
            .browser
            .submit(&form.clone().set("ajax_request", "true"));
        let answer = page.response.json();
        assert_eq!(answer["success"], true, "{}: {answer}", form.action);
        answer["message"].as_str().unwrap_or_default().to_owned()
    }

    fn import(&mut self) {
        let sql = "CREATE TABLE animal (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50) NOT NULL, load_kg INT) CHARACTER SET utf8mb4;\n\
                   INSERT INTO animal (name, load_kg) VALUES ('Élodie', 420), ('Hannibal''s third', 505), ('Jumbo', NULL);\n";
        let form = self
            .form("/import")
            .set("import_type", "database")
            .set("format", "sql")
            .set("charset_of_file", "utf-8")
            .set("noplugin", "1")
            .set("MAX_FILE_SIZE", "10000000");
        let file = File {
            field: "import_file".into(),
            name: "animals.sql".into(),
            kind: "application/sql".into(),
            bytes: sql.into(),
        };
        let page: Page = self.browser.upload(&form, &[file]);
        page.shows("Import has been successfully finished, 2 queries executed");
        assert_eq!(
            self.mariadb
                .sql("SELECT name FROM caravan.animal ORDER BY id")
                .trim(),
            "Élodie\nHannibal's third\nJumbo"
        );
    }

    fn browse_and_search(&mut self) {
        self.browser
            .get("/index.php?route=/database/structure&db=caravan")
            .shows("animal");
        let table = self
            .browser
            .get("/index.php?route=/sql&db=caravan&table=animal&pos=0");
        table.shows("Élodie").shows("Hannibal&#039;s third");
        let search = self.form("/table/search").set("table", "animal");
        let search = [
            "criteriaColumnNames[0]=name",
            "criteriaColumnOperators[0]=LIKE %...%",
            "criteriaValues[0]=anniba",
            "criteriaColumnTypes[0]=varchar(50)",
            "criteriaColumnCollations[0]=utf8mb4_general_ci",
            "displayAllColumns=true",
            "goto=index.php?route=/table/sql",
            "back=index.php?route=/table/search",
            "sql_query=",
        ]
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .fold(search, |form, (name, value)| form.set(name, value));
        let found = self.ajax_html(&search);
        assert!(
            found.contains("third") && !found.contains("Jumbo"),
            "{found}"
        );
    }

    #[track_caller]
    fn ajax_html(&mut self, form: &Form) -> String {
        let answer = self
            .browser
            .submit(&form.clone().set("ajax_request", "true"))
            .response
            .json();
        assert_eq!(answer["success"], true, "{answer}");
        answer["sql_query"].as_str().unwrap_or_default().to_owned()
            + answer["message"].as_str().unwrap_or_default()
    }

    fn edit(&mut self) {
        let sql = self
            .form("/import")
            .set(
                "sql_query",
                "UPDATE animal SET load_kg = 600 WHERE name = 'Jumbo'",
            )
            .set("is_js_confirmed", "1")
            .set("sql_delimiter", ";");
        let said = self.ajax(&sql);
        assert!(said.contains("1 row affected"), "{said}");
        assert_eq!(
            self.mariadb
                .sql("SELECT load_kg FROM caravan.animal WHERE name = 'Jumbo'")
                .trim(),
            "600"
        );
        // A statement that fails is reported.
        let wrong = self
            .form("/import")
            .set("sql_query", "SELECT nothing FROM animal")
            .set("ajax_request", "true");
        let answer = self.browser.submit(&wrong).response.json();
        assert!(
            answer["success"] == false
                && answer["error"]
                    .as_str()
                    .is_some_and(|text| text.contains("#1054")),
            "{answer}"
        );
        // A form without the session's token changes nothing.
        let forged = sql.set("token", "0").set("sql_query", "DROP TABLE animal");
        self.browser.submit(&forged.set("ajax_request", "true"));
        assert_eq!(
            self.mariadb
                .sql("SELECT count(*) FROM caravan.animal")
                .trim(),
            "3"
        );
    }

    fn export(&mut self) {
        let page = self
            .browser
            .get("/index.php?route=/table/export&db=caravan&table=animal");
        let sql = page
            .form("dump")
            .set("what", "sql")
            .set("sql_structure_or_data", "structure_and_data")
            .set("sql_create_table", "on");
        let dump = self.browser.submit(&sql);
        assert_eq!(dump.status(), 200, "{}", dump.excerpt());
        assert!(
            dump.response
                .header("Content-Disposition")
                .is_some_and(|value| value.contains("animal.sql")),
            "{:?}",
            dump.response.head
        );
        assert!(
            dump.text().contains("CREATE TABLE animal")
                && dump.text().contains("(1, 'Élodie', 420)"),
            "{}",
            dump.text()
        );
        let csv = page
            .form("dump")
            .set("what", "csv")
            .set("csv_structure_or_data", "data")
            .set("csv_separator", ",")
            .set("csv_enclosed", "\"");
        let csv = self.browser.submit(&csv);
        assert!(
            csv.text().contains("\"1\",\"Élodie\",\"420\""),
            "{}",
            csv.text()
        );
        let zipped = self.browser.submit(&sql.set("compression", "gzip"));
        assert!(
            zipped.response.body.starts_with(&[0x1f, 0x8b]),
            "{:?}",
            zipped.response.head
        );
    }

    fn log_out(&mut self) {
        let form = self.form("/logout");
        let page = self.browser.submit(&form);
        assert!(
            page.text().contains("login_form"),
            "{} {}",
            page.status(),
            page.excerpt()
        );
        let closed = self
            .browser
            .get("/index.php?route=/sql&db=caravan&table=animal&pos=0");
        assert!(
            closed.text().contains("login_form") && !closed.text().contains("Élodie"),
            "{}",
            closed.excerpt()
        );
    }
}
