//! Database writes that change no page: bookkeeping that applications do on ordinary visits. The data is listed by
//! preset and comes from the applications' own schemas. Without it, every visit that counts itself would invalidate the
//! whole site. A write is noise only if its table, or every row that it is known to touch, is listed here; an unknown
//! write is not noise. If an entry does not name its source, it comes from the application's schema. A table whose
//! content appears on any page is not listed, however rarely that page is read.
//!
//! Table names have the prefix of an installation, so most patterns begin with `*`. Case is ignored.

/// The noise of one application.
#[derive(Debug)]
struct PresetNoise {
    preset: &'static str,
    /// Tables from which nothing is rendered.
    tables: &'static [&'static str],
    /// Rows of tables from which pages are rendered: table, column, values of that column.
    rows: &'static [(&'static str, &'static str, &'static [&'static str])],
}

static NOISE: &[PresetNoise] = &[
    PresetNoise {
        preset: "wordpress",
        tables: &[
            // WooCommerce, WC_Install::get_schema(): baskets, limits, logs, the data for its reports. Not
            // wc_reserved_stock, which may make a product sold out.
            "*woocommerce_sessions",
            "*woocommerce_log",
            "*wc_rate_limits",
            "*wc_download_log",
            "*wc_customer_lookup",
            "*wc_admin_notes",
            "*wc_admin_note_actions",
            // Action Scheduler's queue.
            "*actionscheduler_actions",
            "*actionscheduler_claims",
            "*actionscheduler_groups",
            "*actionscheduler_logs",
            // Counters of visits: WP Statistics, WordPress Popular Posts, Post Views Counter.
            "*statistics_visit",
            "*statistics_visitor",
            "*statistics_visitor_relationships",
            "*statistics_pages",
            "*statistics_useronline",
            "*statistics_historical",
            "*popularpostsdata",
            "*popularpostssummary",
            "*post_views",
            // Redirection's logs, Wordfence's records.
            "*redirection_logs",
            "*redirection_404",
            "*wfhits",
            "*wflogins",
            "*wfconfig",
            "*wfstatus",
            // Yoast creates these when a page is first seen; an edit also writes the post.
            "*yoast_indexable",
            "*yoast_indexable_hierarchy",
        ],
        rows: &[
            (
                "*options",
                "option_name",
                &[
                    "_transient_*",
                    "_site_transient_*",
                    "cron",
                    "action_scheduler_lock_*",
                    "auto_updater.lock",
                    "core_updater.lock",
                    "can_compress_scripts",
                ],
            ),
            ("*sitemeta", "meta_key", &["_site_transient_*"]),
            (
                "*usermeta",
                "meta_key",
                &[
                    "session_tokens",
                    "wc_last_active",
                    "_woocommerce_persistent_cart*",
                    "*user-settings",
                    "*user-settings-time",
                    "*dashboard_quick_press_last_post_id",
                    "community-events-location",
                ],
            ),
            (
                "*postmeta",
                "meta_key",
                &[
                    "_edit_lock",
                    "_encloseme",
                    "_pingme",
                    "views",
                    "post_views_count",
                ],
            ),
            // These become visible only when they change into something else, which is another write.
            ("*posts", "post_type", &["revision"]),
            ("*posts", "post_status", &["auto-draft"]),
        ],
    },
    PresetNoise {
        preset: "mediawiki",
        tables: &[
            "*objectcache",
            "*l10n_cache",
            "*module_deps",
            "*job",
            // Not site_stats ({{NUMBEROFARTICLES}}, Special:Statistics) and not querycache and related tables
            // (Special:ActiveUsers): pages show them, and SiteStatsUpdate and RecentChangesUpdateJob write them with
            // edits, not with visits.
            "*watchlist",
            "*uploadstash",
            "*updatelog",
            "*searchindex",
            // Written with every edit, together with page and revision, and cleaned up by visits.
            "*recentchanges",
        ],
        rows: &[],
    },
    PresetNoise {
        preset: "drupal",
        tables: &[
            // Cache\DatabaseBackend. Not cachetags, which records that content has changed.
            "*cache_*",
            // Session\SessionHandler, Lock\DatabaseLockBackend, Flood\DatabaseBackend,
            // KeyValueStore\DatabaseStorageExpirable, Queue\DatabaseQueue, Batch\BatchStorage.
            "*sessions",
            "*semaphore",
            "*flood",
            "*key_value_expire",
            "*queue",
            "*batch",
            // The modules dblog and history; statistics, which is a separate module since Drupal 11.
            "*watchdog",
            "*history",
            "*node_counter",
        ],
        // Drupal\Core\Cron::run().
        rows: &[("*key_value", "name", &["system.cron_last"])],
    },
    PresetNoise {
        preset: "joomla",
        // installation/sql/mysql/base.sql and extensions.sql.
        tables: &["*session", "*action_logs", "*scheduler_tasks"],
        rows: &[],
    },
    PresetNoise {
        preset: "phpbb",
        // config/default/container/tables.yml: sessions, and what one visitor has read, was asked or searched for.
        tables: &[
            "*sessions",
            "*sessions_keys",
            "*search_results",
            "*login_attempts",
            "*topics_track",
            "*forums_track",
            "*confirm",
        ],
        rows: &[],
    },
    PresetNoise {
        preset: "magento",
        // etc/db_schema.xml of PageCache, Cron, Customer, Reports, MysqlMq and Quote.
        tables: &[
            "*session",
            "*cache",
            "*cache_tag",
            "*cron_schedule",
            "*customer_visitor",
            "*report_event",
            "*report_viewed_product_index",
            "*report_compared_product_index",
            "*queue_message",
            "*queue_message_status",
            "*quote",
            "*quote_*",
        ],
        rows: &[],
    },
    PresetNoise {
        preset: "laravel",
        // config/session.php, cache.php and queue.php.
        tables: &[
            "*sessions",
            "*cache",
            "*cache_locks",
            "*jobs",
            "*job_batches",
            "*failed_jobs",
        ],
        rows: &[],
    },
    PresetNoise {
        preset: "symfony",
        // PdoSessionHandler, Messenger's Doctrine transport, PdoAdapter, Lock's DatabaseTableTrait,
        // DoctrineTokenProvider.
        tables: &[
            "*sessions",
            "*messenger_messages",
            "*cache_items",
            "*lock_keys",
            "*rememberme_token",
        ],
        rows: &[],
    },
];

/// Returns whether a write changes no page of an application. `table` is `None` if any table may be written. `values`
/// are the columns and literals that every written row has, or by which it is chosen: either all of a column or none.
pub fn is_noise<'a>(
    preset: &str,
    table: Option<&[u8]>,
    values: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> bool {
    let Some(table) = table else { return false };
    NOISE.iter().filter(|n| n.preset == preset).any(|noise| {
        noise
            .tables
            .iter()
            .any(|pattern| matches_pattern(pattern, table))
            || noise.rows.iter().any(|(of, column, known)| {
                let mut listed = values
                    .clone()
                    .filter(|(name, _)| name.eq_ignore_ascii_case(column.as_bytes()))
                    .map(|(_, value)| known.iter().any(|pattern| matches_pattern(pattern, value)))
                    .peekable();
                matches_pattern(of, table) && listed.peek().is_some() && listed.all(|is| is)
            })
    })
}

/// Returns whether a text matches a pattern, in which `*` at the beginning or end matches any text.
pub fn matches_pattern(pattern: &str, text: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    let (pattern, before) = match pattern.strip_prefix(b"*") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let (pattern, behind) = match pattern.strip_suffix(b"*") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let same = |part: &[u8]| part.eq_ignore_ascii_case(pattern);
    let Some(room) = text.len().checked_sub(pattern.len()) else {
        return false;
    };
    match (before, behind) {
        (false, false) => same(text),
        (true, false) => same(&text[room..]),
        (false, true) => same(&text[..pattern.len()]),
        (true, true) => (0..=room).any(|at| same(&text[at..at + pattern.len()])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn noise(preset: &str, table: &str, values: &[(&str, &str)]) -> bool {
        let values = values.iter().map(|(c, v)| (c.as_bytes(), v.as_bytes()));
        is_noise(preset, Some(table.as_bytes()), values)
    }

    #[test]
    fn wordpress_visit_is_noise_and_an_edit_is_not() {
        for (table, values, is) in [
            ("wp_options", &[("option_name", "_transient_x")][..], true),
            ("wp_2_Options", &[("OPTION_NAME", "cron")], true),
            ("wp_options", &[("option_name", "blogname")], false),
            (
                "wp_options",
                &[("option_name", "cron"), ("option_name", "blogname")],
                false,
            ),
            ("wp_options", &[("option_value", "cron")], false),
            ("wp_options", &[], false),
            ("wp_woocommerce_sessions", &[], true),
            ("wp_usermeta", &[("meta_key", "session_tokens")], true),
            ("wp_usermeta", &[("meta_key", "nickname")], false),
            ("wp_posts", &[], false),
            (
                "wp_posts",
                &[("post_type", "post"), ("post_status", "publish")],
                false,
            ),
            ("wp_posts", &[("post_type", "revision")], true),
        ] {
            assert_eq!(noise("wordpress", table, values), is, "{table} {values:?}");
        }
        assert!(!noise("php", "wp_options", &[("option_name", "cron")]));
        assert!(!is_noise("wordpress", None, std::iter::empty()));
    }

    #[test]
    fn tables_that_pages_show_are_not_noise() {
        for (preset, table, is) in [
            ("mediawiki", "site_stats", false),
            ("mediawiki", "querycachetwo", false),
            ("mediawiki", "objectcache", true),
            ("drupal", "cachetags", false),
            ("drupal", "cache_render", true),
            ("wordpress", "wp_wc_reserved_stock", false),
            ("wordpress", "wp_wc_product_meta_lookup", false),
            ("wordpress", "wp_wc_customer_lookup", true),
            ("phpbb", "phpbb_topics", false),
            ("phpbb", "phpbb_topics_track", true),
            ("symfony", "rememberme_token", true),
        ] {
            assert_eq!(noise(preset, table, &[]), is, "{preset} {table}");
        }
    }

    #[test]
    fn a_pattern_may_be_open_at_either_end() {
        for (pattern, text, is) in [
            ("a", "A", true),
            ("a", "ab", false),
            ("*b", "ab", true),
            ("*b", "b", true),
            ("*b", "ba", false),
            ("a*", "ab", true),
            ("*a*", "bab", true),
            ("*", "anything", true),
            ("abc", "ab", false),
        ] {
            assert_eq!(
                matches_pattern(pattern, text.as_bytes()),
                is,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn noise_lists_belong_to_presets() {
        for noise in NOISE {
            assert!(Preset::find(noise.preset).is_some(), "{}", noise.preset);
        }
    }
}
