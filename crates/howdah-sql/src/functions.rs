//! Finds the functions in a PostgreSQL statement that may write: a `SELECT` can write through the functions that it
//! calls. The functions that are known to change nothing other connections can read are listed here; every other
//! function counts as a possible write, built-in ones such as `nextval()` as well as user-defined ones.
//!
//! Functions that operators, casts and views call are not found, and neither is a call `f(t)` that is written as `t.f`.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::token::SqlToken;

/// Functions of `pg_catalog` all of whose overloads are immutable or stable (`pg_proc.provolatile`), except for those
/// that only implement types, operators and indexes. The list is as of PostgreSQL 15; functions of later versions are
/// in the next list.
const STABLE_FUNCTIONS: &str = "
    abbrev abs acos acosd acosh age array_agg array_append array_cat array_dims array_fill array_length
    array_lower array_ndims array_position array_positions array_prepend array_remove array_replace
    array_to_json array_to_string array_to_tsvector array_upper ascii asin asind asinh atan atan2 atan2d
    atand atanh avg bit bit_and bit_count bit_length bit_or bit_xor bool bool_and bool_or box bpchar
    broadcast btrim cardinality cbrt ceil ceiling center char char_length character_length chr cidr
    circle col_description concat concat_ws convert convert_from convert_to corr cos cosd cosh cot cotd
    count covar_pop covar_samp cume_dist current_database current_schema current_schemas current_setting
    date date_bin date_part date_trunc datemultirange daterange decode degrees dense_rank diameter div
    encode enum_first enum_last enum_range every exp extract factorial family first_value float4 float8
    floor format format_type gcd generate_series generate_subscripts get_bit get_byte
    get_current_ts_config has_any_column_privilege has_column_privilege has_database_privilege
    has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
    has_parameter_privilege has_schema_privilege has_sequence_privilege has_server_privilege
    has_table_privilege has_tablespace_privilege has_type_privilege height host hostmask
    inet_client_addr inet_client_port inet_merge inet_same_family inet_server_addr inet_server_port
    initcap int2 int4 int4multirange int4range int8 int8multirange int8range interval is_normalized
    isclosed isempty isfinite isopen json_agg json_array_elements json_array_elements_text
    json_array_length json_build_array json_build_object json_each json_each_text json_extract_path
    json_extract_path_text json_object json_object_agg json_object_keys json_populate_record
    json_populate_recordset json_strip_nulls json_to_record json_to_recordset json_to_tsvector
    json_typeof jsonb_agg jsonb_array_elements jsonb_array_elements_text jsonb_array_length
    jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text jsonb_extract_path
    jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_object_keys
    jsonb_path_exists jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz jsonb_path_query
    jsonb_path_query_array jsonb_path_query_array_tz jsonb_path_query_first jsonb_path_query_first_tz
    jsonb_path_query_tz jsonb_populate_record jsonb_populate_recordset jsonb_pretty jsonb_set
    jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_to_tsvector jsonb_typeof
    justify_days justify_hours justify_interval lag last_value lcm lead left length line ln log log10
    lower lower_inc lower_inf lpad lseg ltrim make_date make_interval make_time make_timestamp
    make_timestamptz masklen max md5 min min_scale mod mode multirange name netmask network normalize
    now npoints nth_value ntile num_nonnulls num_nulls numeric nummultirange numnode numrange
    obj_description octet_length overlay parse_ident path pclose percent_rank percentile_cont
    percentile_disc pg_backend_pid pg_client_encoding pg_collation_for pg_collation_is_visible
    pg_column_size pg_conversion_is_visible pg_current_snapshot pg_describe_object pg_encoding_to_char
    pg_function_is_visible pg_get_catalog_foreign_keys pg_get_constraintdef pg_get_expr
    pg_get_function_arg_default pg_get_function_arguments pg_get_function_identity_arguments
    pg_get_function_result pg_get_function_sqlbody pg_get_functiondef pg_get_indexdef pg_get_keywords
    pg_get_object_address pg_get_partition_constraintdef pg_get_partkeydef pg_get_publication_tables
    pg_get_replica_identity_index pg_get_replication_slots pg_get_ruledef pg_get_serial_sequence
    pg_get_statisticsobjdef pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions
    pg_get_triggerdef pg_get_userbyid pg_get_viewdef pg_has_role pg_is_other_temp_schema
    pg_my_temp_schema pg_opclass_is_visible pg_operator_is_visible pg_opfamily_is_visible
    pg_options_to_table pg_postmaster_start_time pg_relation_filenode pg_size_bytes pg_size_pretty
    pg_statistics_obj_is_visible pg_table_is_visible pg_timezone_names pg_trigger_depth
    pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible
    pg_type_is_visible pg_typeof phraseto_tsquery pi plainto_tsquery point polygon popen position pow
    power quote_ident quote_literal quote_nullable radians radius range_agg range_intersect_agg
    range_merge rank regclass regexp_count regexp_instr regexp_like regexp_match regexp_matches
    regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right
    round row_number row_security_active row_to_json rpad rtrim scale set_bit set_byte set_masklen
    setweight sha224 sha256 sha384 sha512 shobj_description sign sin sind sinh slope split_part sqrt
    starts_with statement_timestamp stddev stddev_pop stddev_samp string_agg string_to_array
    string_to_table strip strpos substr substring sum table_to_xml tan tand tanh text time timestamp
    timestamptz timetz timezone to_ascii to_char to_date to_hex to_json to_jsonb to_number to_regclass
    to_regtype to_timestamp to_tsquery to_tsvector transaction_timestamp translate trim_array trim_scale
    trunc ts_delete ts_filter ts_headline ts_rank ts_rank_cd tsmultirange tsquery_phrase tsrange
    tstzmultirange tstzrange tsvector_to_array txid_current txid_current_snapshot unistr unnest upper
    upper_inc upper_inf var_pop var_samp varbit varchar variance version websearch_to_tsquery width
    width_bucket xml_is_well_formed xmlagg xmlcomment xpath xpath_exists
";

/// Further functions that only read, added in PostgreSQL 16 to 18.
const STABLE_FUNCTIONS_SINCE_16: &str = "
    any_value array_reverse array_sample array_shuffle array_sort casefold crc32 crc32c json_array
    json_arrayagg json_exists json_objectagg json_query json_scalar json_serialize json_table json_value
    pg_input_error_info pg_input_is_valid random_normal system_user uuid_extract_timestamp
    uuid_extract_version xmltext
";

/// Functions that the grammar itself defines (func_expr_common_subexpr in PostgreSQL's gram.y), and types with a
/// length.
const GRAMMAR_FUNCTIONS: &str = "
    bigint boolean cast character coalesce collation current_date current_time current_timestamp dec
    decimal greatest grouping int integer json least localtime localtimestamp merge_action national
    nchar nullif overlaps precision real smallint treat trim varying xmlattributes xmlconcat xmlelement
    xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
";

/// Volatile functions that change nothing a page can show: they concern locks, random numbers, the time, or only the
/// caller's own session.
const HARMLESS_VOLATILE_FUNCTIONS: &str = "
    clock_timestamp currval gen_random_uuid lastval pg_advisory_lock pg_advisory_lock_shared
    pg_advisory_unlock pg_advisory_unlock_all pg_advisory_unlock_shared pg_advisory_xact_lock
    pg_advisory_xact_lock_shared pg_blocking_pids pg_database_size pg_indexes_size pg_is_in_recovery
    pg_notify pg_relation_size pg_sleep pg_sleep_for pg_sleep_until pg_table_size pg_total_relation_size
    pg_try_advisory_lock pg_try_advisory_lock_shared pg_try_advisory_xact_lock
    pg_try_advisory_xact_lock_shared random set_config setseed timeofday txid_status uuidv4 uuidv7
";

/// Functions of the extensions pgcrypto, pg_trgm, unaccent, uuid-ossp and fuzzystrmatch.
const EXTENSION_FUNCTIONS: &str = "
    crypt digest gen_salt hmac levenshtein metaphone similarity soundex strict_word_similarity unaccent
    uuid_generate_v1 uuid_generate_v1mc uuid_generate_v4 uuid_generate_v5 word_similarity
";

/// Words that may come before a parenthesis without naming a function: reserved words, and words that cannot name a
/// function in such a position.
const KEYWORDS_BEFORE_PARENTHESIS: &str = "
    all analyze and any array as between both case cube distinct else except exists explain filter from full
    group having ilike in inner insert intersect is join lateral left like limit natural not offset on
    only or outer over right rollup row select set similar some symmetric then to union unique using
    values verbose when where window with
";

static READ_ONLY_FUNCTIONS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let all = [
        STABLE_FUNCTIONS,
        STABLE_FUNCTIONS_SINCE_16,
        GRAMMAR_FUNCTIONS,
        HARMLESS_VOLATILE_FUNCTIONS,
        EXTENSION_FUNCTIONS,
    ];
    all.into_iter().flat_map(str::split_whitespace).collect()
});
static NON_FUNCTION_WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| KEYWORDS_BEFORE_PARENTHESIS.split_whitespace().collect());

/// The maximum length of a name that is looked up, in bytes. No listed name is longer.
const MAX_LISTED_NAME_BYTES: usize = 40;

/// The column name under which [`crate::SqlClassification::values`] lists the functions through which a statement may
/// write. No real column has this name.
pub const CALLED_FUNCTIONS_COLUMN: &str = "()";

fn is_among(set: &HashSet<&str>, name: &[u8], quoted: bool) -> bool {
    let mut lower = [0; MAX_LISTED_NAME_BYTES];
    let Some(lower) = lower.get_mut(..name.len()) else {
        return false;
    };
    lower.copy_from_slice(name);
    if !quoted {
        lower.make_ascii_lowercase();
    }
    std::str::from_utf8(lower).is_ok_and(|name| set.contains(name))
}

/// Returns the called functions that may write, by their names without schema. A statement that writes anyway may call
/// `nextval`, because it belongs to that write.
pub(crate) fn possibly_writing<'a>(tokens: &[SqlToken<'a>], writes: bool) -> Vec<&'a [u8]> {
    // Only in `SELECT DISTINCT ON (a) f(b)` does a call directly follow a closing parenthesis.
    let distinct_on = tokens
        .windows(2)
        .any(|two| two[0].is("DISTINCT") && two[1].is("ON"));
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let (name, quoted) = match tokens[at] {
            SqlToken::Word(word) => (word, false),
            SqlToken::Name(name) => (name, true),
            _ => continue,
        };
        if tokens.get(at + 1) != Some(&SqlToken::Symbol(b'(')) {
            continue;
        }
        let schema = CallSite { tokens, at }.is_own_schema();
        let known = match schema {
            Some(schema) => schema && is_among(&READ_ONLY_FUNCTIONS, name, quoted),
            None => {
                is_among(&READ_ONLY_FUNCTIONS, name, quoted)
                    || (!quoted && is_among(&NON_FUNCTION_WORDS, name, false))
            }
        };
        let own = writes && name.eq_ignore_ascii_case(b"nextval");
        if !known && !own && !(CallSite { tokens, at }).is_not_a_call(distinct_on) {
            found.push(name);
        }
    }
    found
}

/// A word before a parenthesis, and the tokens around it.
struct CallSite<'t, 'a> {
    tokens: &'t [SqlToken<'a>],
    at: usize,
}

impl<'a> CallSite<'_, 'a> {
    fn token_before(&self, steps: usize) -> Option<&SqlToken<'a>> {
        self.tokens.get(self.at.checked_sub(steps)?)
    }

    fn is_before(&self, steps: usize, words: &[&str]) -> bool {
        self.token_before(steps).is_some_and(|t| t.is_any(words))
    }

    /// Returns whether the name's schema is PostgreSQL's own, or `None` if the name has no schema.
    fn is_own_schema(&self) -> Option<bool> {
        if self.token_before(1) != Some(&SqlToken::Symbol(b'.')) {
            return None;
        }
        let own = match self.token_before(2) {
            Some(SqlToken::Word(schema)) => schema.eq_ignore_ascii_case(b"pg_catalog"),
            Some(SqlToken::Name(schema)) => *schema == b"pg_catalog",
            _ => false,
        };
        Some(own && self.token_before(3) != Some(&SqlToken::Symbol(b'.')))
    }

    /// Returns whether the word names a table with its columns, an alias or a type, or is a part of the grammar.
    fn is_not_a_call(&self, distinct_on: bool) -> bool {
        let after_parenthesis =
            self.token_before(1) == Some(&SqlToken::Symbol(b')')) && !distinct_on;
        let is_type = (1..=2).all(|n| self.token_before(n) == Some(&SqlToken::Symbol(b':')));
        let word = &self.tokens[self.at];
        let mut part = 1;
        while self.token_before(part) == Some(&SqlToken::Symbol(b'.')) {
            part += 2;
        }
        after_parenthesis
            || is_type
            || self.is_before(part, &["INTO", "AS", "WITH", "RECURSIVE", "TABLESAMPLE"])
            || (word.is("BY") && self.is_before(1, &["ORDER", "GROUP", "PARTITION"]))
            || (word.is("SETS") && self.is_before(1, &["GROUPING"]))
            || (word.is("CONFLICT") && self.is_before(1, &["ON"]))
            || (word.is("MATERIALIZED") && self.is_before(2, &["AS"]))
            || self.is_common_table()
    }

    /// Returns whether the word is the second or a later name in a `WITH`: `, name (columns) AS (SELECT …`.
    fn is_common_table(&self) -> bool {
        if self.token_before(1) != Some(&SqlToken::Symbol(b',')) {
            return false;
        }
        let mut rest = self.tokens[self.at + 2..].iter();
        let columns = rest.by_ref().take_while(|t| **t != SqlToken::Symbol(b')'));
        let only_names = columns.copied().all(|t| {
            matches!(
                t,
                SqlToken::Word(_) | SqlToken::Name(_) | SqlToken::Symbol(b',')
            )
        });
        if !only_names || !rest.next().is_some_and(|t| t.is("AS")) {
            return false;
        }
        let mut rest = rest.skip_while(|t| t.is_any(&["NOT", "MATERIALIZED"]));
        let mut next = || rest.next().copied().unwrap_or(SqlToken::Other);
        next() == SqlToken::Symbol(b'(')
            && next().is_any(&[
                "SELECT", "VALUES", "WITH", "TABLE", "INSERT", "UPDATE", "DELETE",
            ])
    }
}
