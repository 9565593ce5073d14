use super::*;

/// Describes a classification in one line: `r` for a read, `c` for a control statement; for a write its verb, table and
/// values.
fn describe(dialect: Dialect, sql: &str) -> String {
    let verdict = classify(dialect, sql.as_bytes());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match verdict.kind {
        StatementKind::Read => "r".to_owned(),
        StatementKind::Control => "c".to_owned(),
        StatementKind::Write => {
            let mut out = format!(
                "{} {}",
                verdict.verb,
                verdict.table.map_or("*".to_owned(), text)
            );
            for (column, value) in verdict.values {
                out += &format!(" {}={}", text(column), text(value));
            }
            out
        }
    }
}

fn check(dialect: Dialect, cases: &[(&str, &str)]) {
    for (sql, expected) in cases {
        assert_eq!(describe(dialect, sql), *expected, "{dialect:?}: {sql}");
    }
}

#[test]
fn wordpress_writes_are_reported_with_table_and_row_values() {
    check(
        Dialect::Mysql,
        &[
            (
                "SELECT option_value FROM wp_options WHERE option_name = 'cron' LIMIT 1",
                "r",
            ),
            (
                "SELECT ID FROM wp_posts WHERE post_title = 'a; DELETE FROM b'",
                "r",
            ),
            ("SET SESSION sql_mode='NO_ENGINE_SUBSTITUTION'", "c"),
            (
                "UPDATE `wp_options` SET `option_value` = 'a:3:{s:4:\\\"cron\\\";}' WHERE `option_name` = 'cron'",
                "UPDATE wp_options option_name=cron",
            ),
            (
                "INSERT INTO `wp_options` (`option_name`, `option_value`, `autoload`) VALUES ('_transient_timeout_x', '1700000000', 'no') ON DUPLICATE KEY UPDATE `option_name` = VALUES(`option_name`), `option_value` = VALUES(`option_value`)",
                "INSERT wp_options option_name=_transient_timeout_x option_value=1700000000 autoload=no",
            ),
            (
                "UPDATE `wp_usermeta` SET `meta_value` = 'x' WHERE `user_id` = 1 AND `meta_key` = 'session_tokens'",
                "UPDATE wp_usermeta meta_key=session_tokens",
            ),
            (
                "DELETE FROM `wp_options` WHERE `option_name` = '_transient_doing_cron'",
                "DELETE wp_options option_name=_transient_doing_cron",
            ),
            (
                "DELETE a, b FROM wp_options a, wp_options b WHERE a.option_name LIKE '\\\\_transient\\\\_%'",
                "DELETE *",
            ),
            ("TRUNCATE TABLE `wp_log`", "TRUNCATE wp_log"),
            ("REPLACE INTO db.t (a) VALUES ('x')", "REPLACE t a=x"),
            (
                "/* a comment */ -- and\n# another\n UPDATE t SET a=1",
                "UPDATE t",
            ),
        ],
    );
}

#[test]
fn value_is_reported_only_if_every_written_row_has_it() {
    let none = "UPDATE o";
    check(
        Dialect::Mysql,
        &[
            ("UPDATE o SET v='1' WHERE n='a' OR 1=1", none),
            ("UPDATE o SET v='1' WHERE n='a' || 1", none),
            ("UPDATE o SET v='1' WHERE NOT n='a'", none),
            ("UPDATE o SET v='1' WHERE n='a' 'b'", none),
            ("UPDATE o SET v='1' WHERE n=_utf8'a'", none),
            ("UPDATE o SET v='1' WHERE n='it''s'", none),
            ("UPDATE o SET v='1' WHERE n='a\\'b'", none),
            ("UPDATE o SET v='1' WHERE n<>'a'", none),
            ("UPDATE o SET v='1' WHERE x BETWEEN 1 AND n='a'", none),
            ("UPDATE o SET n='b' WHERE n='a'", none),
            ("UPDATE o SET v='x WHERE n=\\'a\\''", none),
            (
                "UPDATE o SET v='1' WHERE (n='b' OR 1) AND n='a'",
                "UPDATE o n=a",
            ),
            (
                "UPDATE o SET v=(SELECT 1 WHERE n='b') WHERE n='a' ORDER BY 1",
                "UPDATE o n=a",
            ),
            (
                "UPDATE o SET v='1' WHERE n IN ('a','b') LIMIT 2",
                "UPDATE o n=a n=b",
            ),
            ("UPDATE o SET v='1' WHERE n IN ('a',f('b'))", none),
            ("UPDATE o x SET x.v='1' WHERE x.n='a'", "UPDATE o n=a"),
            ("UPDATE o, p SET o.v=1 WHERE n='a'", "UPDATE *"),
            ("UPDATE o JOIN p ON 1 SET o.v=1 WHERE n='a'", "UPDATE *"),
            (
                "INSERT INTO o (n,v) VALUES ('a',1),('b',2)",
                "INSERT o n=a n=b",
            ),
            ("INSERT INTO o (n,v) VALUES ('a',1),(f('b'),2)", "INSERT o"),
            ("INSERT INTO o (n) SELECT n FROM p", "INSERT o"),
            ("INSERT INTO o SET n='a'", "INSERT o"),
            ("INSERT IGNORE o VALUES ('a')", "INSERT o"),
            ("DELETE FROM o USING o JOIN p WHERE n='a'", "DELETE *"),
            ("DELETE FROM o AS x WHERE x.n='a'", "DELETE o n=a"),
        ],
    );
}

#[test]
fn unknown_statement_is_a_write() {
    check(
        Dialect::Mysql,
        &[
            ("", "r"),
            ("(SELECT 1) UNION (SELECT 2)", "r"),
            ("SELECT 1; DELETE FROM t", "DELETE t"),
            ("DELETE FROM t; INSERT INTO u VALUES (1)", "MULTI *"),
            ("COMMIT; SELECT 1", "c"),
            ("CALL do_it()", "CALL *"),
            ("LOAD DATA INFILE 'x' INTO TABLE t", "LOAD *"),
            ("EXECUTE s", "EXECUTE *"),
            ("DROP TABLE t", "DROP *"),
            ("CREATE TEMPORARY TABLE t (a int)", "c"),
            ("WITH a AS (SELECT 1) SELECT * FROM a", "r"),
            ("WITH a AS (SELECT 1) DELETE FROM t", "WITH *"),
            ("EXPLAIN DELETE FROM t", "r"),
            ("EXPLAIN ANALYZE DELETE FROM t", "WITH *"),
            ("SELECT /*!99999 1; */ 1", "UNREADABLE *"),
            ("/*! DELETE FROM t */", "UNREADABLE *"),
            ("SELECT /* f */  /*! STRAIGHT_JOIN */ a FROM t", "r"),
            (
                "SELECT /*! STRAIGHT_JOIN a INTO OUTFILE 'x' */ 1",
                "UNREADABLE *",
            ),
            ("INSERT INTO t VALUES ('a", "UNREADABLE *"),
            ("{t}", " *"),
        ],
    );
    check(
        Dialect::Postgres,
        &[
            ("SELECT * FROM t WHERE a = 'x\\'", "r"),
            ("SELECT * INTO u FROM t", "SELECT *"),
            (
                "WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d",
                "WITH *",
            ),
            ("SELECT * FROM t FOR UPDATE", "r"),
            (
                "WITH a AS (SELECT * FROM t FOR UPDATE) SELECT * FROM a",
                "r",
            ),
            ("SELECT $x$ ; DELETE FROM t $x$, $1", "r"),
            ("SELECT E'\\'; DELETE FROM t; --'", "r"),
            ("SELECT '\\'; DELETE FROM t; --'", "DELETE t"),
            (
                "INSERT INTO public.\"T\" (\"a\") VALUES ('x')",
                "INSERT T a=x",
            ),
            ("/* /* nested */ DELETE */ SELECT 1", "r"),
            ("COPY t FROM STDIN", "COPY *"),
            ("DO $$ BEGIN DELETE FROM t; END $$", "DO *"),
        ],
    );
    check(
        Dialect::Sqlite,
        &[
            // A comment, whatever its content: MediaWiki sends such comments to every database.
            ("SELECT /*! STRAIGHT_JOIN */ a FROM t", "r"),
            ("/*! x */ DELETE FROM t", "DELETE t"),
            (
                "INSERT OR REPLACE INTO [my t] (a) VALUES ('x')",
                "INSERT my t a=x",
            ),
            (
                "UPDATE OR IGNORE t SET a = 1 FROM u WHERE n='a'",
                "UPDATE t",
            ),
            ("SELECT 'x\\'", "r"),
            ("SELECT '\\'; DELETE FROM t", "DELETE t"),
            ("PRAGMA journal_mode=WAL", "c"),
            ("VACUUM", "c"),
        ],
    );
}

#[test]
fn reported_names_and_values_are_limited() {
    let long = "x".repeat(MAX_VALUE_BYTES + 1);
    let sql = format!("UPDATE t SET a=1 WHERE n='{long}' AND m='y'");
    assert_eq!(describe(Dialect::Mysql, &sql), "UPDATE t m=y");
    let name = "t".repeat(MAX_TABLE_NAME_BYTES + 1);
    assert_eq!(
        describe(Dialect::Mysql, &format!("DELETE FROM {name}")),
        "DELETE *"
    );
    let rows = vec!["('v')"; 65].join(",");
    let sql = format!("INSERT INTO t (n) VALUES {rows}");
    assert_eq!(describe(Dialect::Mysql, &sql), "INSERT t");
    let rows = (0..60).map(|n| format!("('{n}{}')", "v".repeat(100)));
    let rows: Vec<_> = rows.collect();
    let sql = format!("INSERT INTO t (n) VALUES {}", rows.join(","));
    assert_eq!(describe(Dialect::Mysql, &sql), "INSERT t");
}

#[test]
fn postgresql_select_writes_if_a_called_function_may() {
    check(
        Dialect::Postgres,
        &[
            ("SELECT nextval('s')", "SELECT * ()=nextval"),
            (
                "SELECT setval('s', 1), Mine(2)",
                "SELECT * ()=setval ()=Mine",
            ),
            ("SELECT public.lower('x')", "SELECT * ()=lower"),
            ("SELECT pg_catalog.lower('x'), \"count\"(*) FROM t", "r"),
            ("SELECT \"COUNT\"(*) FROM t", "SELECT * ()=COUNT"),
            ("SELECT DISTINCT ON (a) save(b) FROM t", "SELECT * ()=save"),
            ("VALUES (save(1))", "VALUES * ()=save"),
            ("(SELECT save())", "SELECT * ()=save"),
            ("SELECT 1; SELECT save()", "SELECT * ()=save"),
            ("EXPLAIN ANALYZE SELECT save()", "EXPLAIN * ()=save"),
            (
                "WITH a(x) AS (SELECT 1), b(y) AS MATERIALIZED (SELECT 2) SELECT * FROM a, b",
                "r",
            ),
            (
                "WITH a AS (SELECT save()) SELECT * FROM a",
                "WITH * ()=save",
            ),
            ("SELECT * FROM a, save(b) AS (c int)", "SELECT * ()=save"),
            ("CREATE TEMP TABLE t AS SELECT save()", "CREATE * ()=save"),
            (
                "CREATE TEMP TABLE t AS WITH d AS (DELETE FROM u RETURNING *) SELECT * FROM d",
                "CREATE *",
            ),
            (
                "SELECT COUNT(*) FILTER (WHERE a), SUM(b) OVER (PARTITION BY (c) ORDER BY (d)) FROM t",
                "r",
            ),
            (
                "SELECT a::numeric(10,2), CAST(b AS varchar(5)), EXTRACT(year FROM c) FROM (VALUES (1,2)) v(a,b) WHERE a IN (1) AND NOT (b = ANY ($1))",
                "r",
            ),
            (
                "SELECT * FROM t TABLESAMPLE system (1) JOIN u USING (id)",
                "r",
            ),
            (
                "SELECT a FROM t GROUP BY GROUPING SETS ((a), ()) LIMIT (5)",
                "r",
            ),
            (
                "INSERT INTO s.t (a) VALUES ('x') ON CONFLICT (a) DO NOTHING",
                "INSERT t a=x",
            ),
            (
                "INSERT INTO t (id, a) VALUES (nextval('s'), 'x')",
                "INSERT t a=x",
            ),
            ("INSERT INTO t (a) VALUES (save('x'))", "INSERT *"),
            (
                "UPDATE t SET (a, b) = (1, lower('X')) WHERE c = 'd'",
                "UPDATE t",
            ),
            ("DELETE FROM t WHERE save(a)", "DELETE *"),
        ],
    );
    let many = vec!["f()"; 17].join(",");
    let many_described = describe(Dialect::Postgres, &format!("SELECT {many}"));
    assert_eq!(many_described, "SELECT *");
    let long = format!("SELECT {}()", "f".repeat(65));
    assert_eq!(describe(Dialect::Postgres, &long), "SELECT *");
    // In dialects where functions rarely write, a SELECT counts as a read.
    assert_eq!(describe(Dialect::Mysql, "SELECT save()"), "r");
}
