//! Database writes that change no page: bookkeeping that applications do on ordinary visits. A preset lists them
//! ([`howdah_apps::cache_profile`] has the rules for these lists). An unknown write is not noise.
//!
//! Table names have the prefix of an installation, so most patterns begin with `*`. Case is ignored.

use crate::preset::Preset;

/// Returns whether a write changes no page of an application. `table` is `None` if any table may be written. `values`
/// are the columns and literals that every written row has, or by which it is chosen. They contain either all literals
/// of a column or none.
pub fn is_noise<'a>(
    preset: &str,
    table: Option<&[u8]>,
    values: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> bool {
    let Some(table) = table else { return false };
    let Some(preset) = Preset::find(preset) else {
        return false;
    };
    let tables = preset.noise_tables;
    tables.iter().any(|pattern| matches_pattern(pattern, table))
        || preset.noise_rows.iter().any(|rows| {
            let known = &rows.values;
            let mut listed = values
                .clone()
                .filter(|(name, _)| name.eq_ignore_ascii_case(rows.column.as_bytes()))
                .map(|(_, value)| known.iter().any(|pattern| matches_pattern(pattern, value)))
                .peekable();
            matches_pattern(rows.table, table) && listed.peek().is_some() && listed.all(|is| is)
        })
}

/// Returns whether a string matches a pattern, in which `*` at the beginning or end matches any text.
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
            (
                "wp_usermeta",
                &[("meta_key", "_woocommerce_load_saved_cart_after_login")],
                true,
            ),
            ("wp_usermeta", &[("meta_key", "nickname")], false),
            ("wp_posts", &[], false),
            (
                "wp_posts",
                &[("post_type", "post"), ("post_status", "publish")],
                false,
            ),
            ("wp_posts", &[("post_type", "revision")], true),
            (
                "wp_options",
                &[("option_name", "litespeed.crawler._summary")],
                true,
            ),
            (
                "wp_options",
                &[("option_name", "litespeed.purge.queue")],
                false,
            ),
            (
                "wp_options",
                &[("option_name", "litespeed.conf.esi")],
                false,
            ),
            ("wp_litespeed_crawler", &[], true),
            ("wp_litespeed_url", &[], false),
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
}
