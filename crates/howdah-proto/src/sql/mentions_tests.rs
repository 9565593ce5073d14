//! Two judges of [`mentioned`]: a list by hand, and statements put together at random by a grammar that
//! knows which tables it has put in.

use super::mentions::mentioned;
use super::{Dialect, MAX_MENTIONED};

fn told(dialect: Dialect, sql: &str) -> String {
    match mentioned(dialect, sql.as_bytes()) {
        Ok(names) => {
            let names = names.iter().map(|n| String::from_utf8_lossy(n));
            names.collect::<Vec<_>>().join(" ")
        }
        Err(_) => "?".to_owned(),
    }
}

fn check(dialect: Dialect, cases: &[(&str, &str)]) {
    for (sql, expected) in cases {
        assert_eq!(told(dialect, sql), *expected, "{sql}");
    }
}

#[test]
fn the_statements_of_a_wordpress_page_are_understood() {
    check(
        Dialect::Mysql,
        &[
            ("SET NAMES utf8mb4", ""),
            ("SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_520_ci'", ""),
            ("SELECT @@SESSION.sql_mode", ""),
            (
                "SET SESSION sql_mode='NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO'",
                "",
            ),
            (
                "SELECT option_name, option_value FROM wp_options WHERE autoload IN ( 'yes', 'on' )",
                "wp_options",
            ),
            (
                "SELECT SQL_CALC_FOUND_ROWS  wp_posts.ID\n\t\t\tFROM wp_posts \n WHERE 1=1 AND ((wp_posts.post_type = 'post' AND (wp_posts.post_status = 'publish')))\n ORDER BY wp_posts.post_date DESC LIMIT 0, 10",
                "wp_posts",
            ),
            ("SELECT FOUND_ROWS()", ""),
            (
                "SELECT DISTINCT t.term_id, tr.object_id FROM wp_terms AS t INNER JOIN wp_term_taxonomy AS tt ON t.term_id = tt.term_id INNER JOIN wp_term_relationships AS tr ON tr.term_taxonomy_id = tt.term_taxonomy_id WHERE tt.taxonomy IN ('category', 'post_tag') ORDER BY t.name ASC",
                "wp_terms wp_term_taxonomy wp_term_relationships",
            ),
            (
                "SELECT post_id, meta_key FROM `wp_postmeta` WHERE post_id IN (1,2) ORDER BY meta_id ASC",
                "wp_postmeta",
            ),
            (
                "SELECT wp_comments.comment_ID FROM wp_comments JOIN wp_posts ON wp_posts.ID = wp_comments.comment_post_ID WHERE ( comment_approved = '1' ) ORDER BY FIELD(comment_ID, 1, 2)",
                "wp_comments wp_posts",
            ),
            (
                "INSERT INTO `wp_options` (`option_name`, `option_value`) VALUES ('_transient_x', 'a \\' FROM b') ON DUPLICATE KEY UPDATE `option_name` = VALUES(`option_name`)",
                "wp_options",
            ),
            (
                "UPDATE `wp_posts` SET `comment_count` = 3 WHERE `ID` = 1",
                "wp_posts",
            ),
            (
                "DELETE FROM wp_comments WHERE comment_ID = 1",
                "wp_comments",
            ),
            ("SHOW FULL COLUMNS FROM `wp_options`", ""),
        ],
    );
}

#[test]
fn a_table_is_found_wherever_it_may_stand() {
    check(
        Dialect::Mysql,
        &[
            ("SELECT a, b FROM x, y AS z, `W`.`V`", "x y v"),
            (
                "SELECT (SELECT 1 FROM a), b FROM c WHERE d IN (SELECT e FROM f, g)",
                "a c f g",
            ),
            (
                "(SELECT 1 FROM a) UNION ALL (SELECT 2 FROM b) ORDER BY 1",
                "a b",
            ),
            ("WITH c AS (SELECT 1 FROM a) SELECT * FROM c, b", "a c b"),
            (
                "SELECT * FROM (a, (b JOIN c ON b.x = c.order)), d",
                "a b c d",
            ),
            (
                "SELECT * FROM a JOIN b ON f.x IN (1, 2) AND (1, 2) = (3, 4), c",
                "a b c",
            ),
            ("SELECT * FROM a USE INDEX FOR ORDER BY (i, j), b", "a b"),
            ("SELECT * FROM a JOIN b USING (x, y), c", "a b c"),
            (
                "SELECT * FROM quick, value, window w, `select`",
                "quick value window select",
            ),
            ("SELECT 1 FROM a FOR UPDATE", "a"),
            ("SELECT * FROM/**/a/* , b */,c -- , d\n,e # , f", "a c e"),
            (
                "INSERT INTO a (x) SELECT y FROM b WHERE EXISTS (SELECT 1 FROM c)",
                "a b c",
            ),
            ("UPDATE a SET x = (SELECT MAX(y) FROM b), z = 1", "a b"),
            ("DELETE FROM a WHERE x NOT IN (SELECT y FROM db.b)", "a b"),
            ("SELECT EXTRACT(YEAR FROM d), x FROM a", "d a"),
            ("SELECT 1.5, .5, 1e5, 0x41 FROM a;", "a"),
        ],
    );
    check(
        Dialect::Sqlite,
        &[
            (
                "SELECT * FROM [my t] WHERE x IN u AND y NOT IN main.v",
                "my t u v",
            ),
            (
                "SELECT anything(x) FROM \"A\" LEFT JOIN outer ON 1",
                "a outer",
            ),
            ("UPDATE a SET x = 1 FROM b, c WHERE a.i = b.i", "a b c"),
            ("INSERT INTO a SELECT * FROM with", "a with"),
            ("PRAGMA foreign_keys = ON", ""),
            ("BEGIN IMMEDIATE TRANSACTION", ""),
        ],
    );
}

#[test]
fn what_may_read_another_table_is_not_understood() {
    for sql in [
        "SELECT mine(1) FROM a",
        "SELECT `count`(1) FROM a",
        "SELECT `co``unt`(1) FROM a",
        "SELECT db.count(1) FROM a",
        "SELECT \"count\"(1) FROM a",
        "SELECT 1f(2)",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT @a",
        "SELECT a INTO @a FROM b",
        "SELECT a FROM b INTO OUTFILE 'c'",
        "SELECT 1.FROM a",
        "SELECT 1e1FROM a",
        "SELECT\\NFROM a",
        "SELECT * FROM a /*! STRAIGHT_JOIN */ b",
        "SELECT * FROM {OJ a LEFT JOIN b ON 1}",
        "SELECT * FROM \"a\"",
        "SELECT * FROM ?",
        "SELECT * FROM a PROCEDURE ANALYSE()",
        "SELECT * FROM JSON_TABLE('[]', '$[*]' COLUMNS (x INT PATH '$')) t",
        "SELECT * FROM information_schema.tables",
        "SELECT NEXT VALUE FOR s",
        "SELECT 1 FROM",
        "SELECT (1 FROM a",
        "SELECT \u{e9} FROM a",
        "SELECT 1 FROM `\u{e9}`",
        "SELECT 1 FROM\u{b}a",
        "SELECT 1; SELECT 2",
        "TABLE a",
        "CALL a()",
        "SHOW CREATE VIEW a",
        "SHOW TRIGGERS",
        "SHOW INDEX FROM a",
        "EXPLAIN SELECT 1",
        "USE b",
        "LOCK TABLES a READ",
        "CREATE TEMPORARY TABLE a SELECT * FROM b",
        "ALTER TABLE a ADD b INT",
        "UPDATE a, b SET a.x = b.x",
        "DELETE a FROM a JOIN b",
        "WITH c AS (SELECT 1) DELETE FROM a",
        "SET @a = 1",
        "SET NAMES gbk",
        "SET SESSION sql_mode = 'ANSI_QUOTES'",
        "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET SESSION sql_mode = (SELECT x FROM a)",
        "BEGIN NOT ATOMIC",
        "SELECT 'a",
    ] {
        assert_eq!(told(Dialect::Mysql, sql), "?", "{sql}");
    }
    for sql in [
        "SELECT * FROM pragma_table_info('a')",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM 'a'",
        "SELECT load_extension('a')",
        "ATTACH 'a' AS b",
        "PRAGMA user_version",
        "INSERT INTO a SELECT * FROM f(1)",
    ] {
        assert_eq!(told(Dialect::Sqlite, sql), "?", "{sql}");
    }
    for dialect in [Dialect::Postgres, Dialect::Other] {
        assert_eq!(told(dialect, "SELECT 1"), "?");
    }
    let many: Vec<_> = (0..=MAX_MENTIONED).map(|n| format!("t{n}")).collect();
    let sql = format!("SELECT 1 FROM {}", many.join(","));
    assert_eq!(told(Dialect::Mysql, &sql), "?");
}

/// Statements at random, with the tables that are in them. A linear congruential generator: the same
/// statements every time.
struct Grammar {
    state: u64,
    sqlite: bool,
    tables: Vec<String>,
}

impl Grammar {
    fn below(&mut self, n: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % n
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn blank(&mut self) -> &'static str {
        self.pick(&[" ", " ", "\n", "\t", "/* FROM x, y */", " -- ' , z\n", "  "])
    }

    fn name(&mut self) -> String {
        let plain = self.pick(&[
            "t", "wp_posts", "Options", "quick", "u2", "lateral", "value", "with_x",
        ]);
        let own = format!("{plain}{}", self.below(30));
        match self.below(4) {
            0 => format!("`{own}`"),
            1 if self.sqlite => format!("[{own}]"),
            1 => own.to_uppercase(),
            _ => own,
        }
    }

    fn table(&mut self) -> String {
        let name = self.name();
        self.tables
            .push(name.trim_matches(['`', '[', ']']).to_ascii_lowercase());
        let schema = if self.below(5) == 0 { "db." } else { "" };
        format!("{schema}{name}")
    }

    fn factor(&mut self, depth: u32) -> String {
        let (a, b) = (self.blank(), self.blank());
        match self.below(if depth == 0 { 2 } else { 6 }) {
            0 => self.table(),
            1 => {
                let table = self.table();
                let alias = self.pick(&["AS x", "x", "AS `order`", "window"]);
                format!("{table}{a}{alias}")
            }
            2 => format!("({a}{}{b}){a}AS s", self.select(depth - 1)),
            3 => format!("({}{a})", self.list(depth - 1)),
            4 if !self.sqlite => {
                let table = self.table();
                let hint = self.pick(&[
                    "USE INDEX (i, j)",
                    "FORCE INDEX FOR ORDER BY (i)",
                    "PARTITION (p, q)",
                ]);
                format!("{table} {hint}")
            }
            _ => {
                let left = self.factor(depth - 1);
                let join = self.pick(&[
                    "JOIN",
                    "LEFT JOIN",
                    "INNER  JOIN",
                    "natural join",
                    "CROSS JOIN",
                ]);
                let right = self.factor(depth - 1);
                let on = match self.below(3) {
                    0 => String::new(),
                    1 => format!(" ON{a}{}", self.condition(depth - 1)),
                    _ => " USING (c, d)".to_owned(),
                };
                format!("{left}{b} {join}{a} {right}{on}")
            }
        }
    }

    fn list(&mut self, depth: u32) -> String {
        let mut out = self.factor(depth);
        for _ in 0..self.below(3) {
            let blank = self.blank();
            out = format!("{out}{blank},{}", self.factor(depth));
        }
        out
    }

    fn value(&mut self, depth: u32) -> String {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => "'it''s FROM a, b'".to_owned(),
            1 => self.pick(&["1", "1.5", "0x41", "NULL", "?"]).to_owned(),
            2 => self
                .pick(&["a.b", "x.order", "`a`.`from`", "t.`group`", "c"])
                .to_owned(),
            3 => "COUNT(DISTINCT x.y, z)".to_owned(),
            4 if self.sqlite => "'a\\'".to_owned(),
            4 => "'a\\', b FROM c'".to_owned(),
            5 => format!("({})", self.select(depth - 1)),
            6 => format!("CASE WHEN {} THEN 1 ELSE 2 END", self.condition(depth - 1)),
            _ => format!("COALESCE({}, (1), 2)", self.value(depth - 1)),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        let left = self.value(depth.saturating_sub(1));
        match self.below(if depth == 0 { 3 } else { 6 }) {
            0 => format!("{left} = {}", self.value(0)),
            1 => format!("{left} BETWEEN 1 AND 2"),
            2 => format!("{left} IN (1, 'b', 3)"),
            3 => format!("{left} IN ({})", self.select(depth - 1)),
            4 => format!("{left} AND NOT EXISTS({})", self.select(depth - 1)),
            5 if self.sqlite => format!("{left} NOT IN {}", self.table()),
            _ => {
                let right = self.condition(depth - 1);
                format!("({left} AND {right})")
            }
        }
    }

    fn select(&mut self, depth: u32) -> String {
        let mut out = "SELECT".to_owned();
        for n in 0..=self.below(3) {
            let comma = if n > 0 { "," } else { "" };
            let blank = self.blank();
            out = format!("{out}{comma}{blank} {}", self.value(depth));
        }
        let blank = self.blank();
        out = format!("{out}{blank} FROM{blank} {}", self.list(depth));
        if self.below(2) == 0 {
            out = format!("{out} WHERE {}", self.condition(depth));
        }
        out += self.pick(&[
            "",
            "",
            " GROUP BY a, b HAVING c > 1",
            " ORDER BY a.b, c DESC LIMIT 1, 2",
        ]);
        if depth > 0 && self.below(4) == 0 {
            let union = self.pick(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
            out = format!("{out} {union} {}", self.select(depth - 1));
        }
        out
    }

    fn statement(&mut self) -> String {
        match self.below(8) {
            0 => format!("INSERT INTO {} (a, b) {}", self.table(), self.select(2)),
            1 => {
                let (table, value) = (self.table(), self.value(2));
                format!(
                    "UPDATE {table} SET a = {value}, b = 2 WHERE {}",
                    self.condition(2)
                )
            }
            2 => format!("DELETE FROM {} WHERE {}", self.table(), self.condition(3)),
            3 => format!("WITH w AS ({}) {}", self.select(1), self.select(2)),
            4 => format!("({}) UNION ({});", self.select(2), self.select(1)),
            _ => self.select(3),
        }
    }
}

#[test]
fn every_table_a_grammar_put_into_a_statement_is_found_or_the_statement_is_not_understood() {
    let mut understood = 0;
    for seed in 0..3000 {
        let mut grammar = Grammar {
            state: seed,
            sqlite: seed % 2 == 0,
            tables: Vec::new(),
        };
        grammar.below(2);
        let sql = grammar.statement();
        let dialect = if grammar.sqlite {
            Dialect::Sqlite
        } else {
            Dialect::Mysql
        };
        let Ok(names) = mentioned(dialect, sql.as_bytes()) else {
            continue;
        };
        understood += 1;
        for table in &grammar.tables {
            let found = names.iter().any(|name| name == table.as_bytes());
            assert!(
                found,
                "{table} is missing in {:?} of {dialect:?} {sql}",
                told(dialect, &sql)
            );
        }
    }
    assert!(understood > 2500, "{understood} of 3000 understood");
}
