//! Parses the words of a `RewriteRule`: its flags and its substitution.

use crate::target::variable_reference;

/// Flags such as `[L,R=301]`: names and values.
#[derive(Clone, Debug, Default)]
pub struct RewriteFlags(pub Vec<(String, String)>);

impl RewriteFlags {
    /// Parses flags; their names are replaced by the short ones.
    pub fn parse(text: &str) -> RewriteFlags {
        let text = text.trim().trim_start_matches('[').trim_end_matches(']');
        let flags = text
            .split(',')
            .map(str::trim)
            .filter(|flag| !flag.is_empty());
        let flag = |flag: &str| {
            let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
            let name = match name.to_ascii_lowercase().as_str() {
                "chain" => "c".to_owned(),
                "cookie" => "co".to_owned(),
                "discardpath" => "dpi".to_owned(),
                "env" => "e".to_owned(),
                "forbidden" => "f".to_owned(),
                "gone" => "g".to_owned(),
                "handler" => "h".to_owned(),
                "last" | "end" => "l".to_owned(),
                "next" => "n".to_owned(),
                "nocase" => "nc".to_owned(),
                "noescape" => "ne".to_owned(),
                "nosubreq" => "ns".to_owned(),
                "ornext" => "or".to_owned(),
                "passthrough" => "pt".to_owned(),
                "proxy" => "p".to_owned(),
                "qsappend" => "qsa".to_owned(),
                "qsdiscard" => "qsd".to_owned(),
                "redirect" => "r".to_owned(),
                "skip" => "s".to_owned(),
                "type" => "t".to_owned(),
                name => name.to_owned(),
            };
            (name, value.to_owned())
        };
        RewriteFlags(flags.map(flag).collect())
    }

    /// Returns the value of a flag.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns whether a flag is set.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// Translates a substitution into the target of a rule.
pub fn rewrite_target(text: &str, groups: &[String]) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let rest = chars.as_str();
        match c {
            '\\' => out.extend(chars.next().map(|c| {
                if c == '$' {
                    "$$".to_owned()
                } else {
                    c.to_string()
                }
            })),
            '$' if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                let digit = chars.next().unwrap_or('0');
                out += &format!("${{{digit}}}");
            }
            '$' if rest.starts_with('{') => return Err("rules have no RewriteMap".to_owned()),
            '$' => out += "$$",
            '%' if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                // `%20` and similar escapes are part of the URL.
                let is_escape = rest.len() > 1
                    && rest.is_char_boundary(2)
                    && u8::from_str_radix(&rest[..2], 16).is_ok();
                let digit = chars.next().and_then(|c| c.to_digit(10)).unwrap_or(0) as usize;
                match groups.get(digit) {
                    Some(group) => out += &group.replace('$', "$$"),
                    None if is_escape => out += &format!("%{digit}"),
                    None => {
                        return Err(format!(
                            "%{digit} refers to a group of a condition, but a rule can refer only to the groups of its own expression"
                        ));
                    }
                }
            }
            '%' if rest.starts_with('{') => {
                let end = rest.find('}').ok_or("`%{` without `}`")?;
                let after = &rest[end + 1..];
                match rest[1..end].to_ascii_uppercase().as_str() {
                    "HTTP_HOST" | "SERVER_NAME" => out += &variable_reference("host", after),
                    "REQUEST_URI" => out += &variable_reference("uri", after),
                    "QUERY_STRING" => out += &variable_reference("query", after),
                    "DOCUMENT_ROOT" => {}
                    "REQUEST_SCHEME" => return Err("write https:// or http:// instead".to_owned()),
                    name => return Err(format!("a rule's target cannot contain %{{{name}}}")),
                }
                chars = after.chars();
            }
            c => out.push(c),
        }
    }
    // Removes the port from `https://HOST:443`.
    Ok(out.replace("$host:443", "$host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrite_target_delimits_variables() {
        for (text, target) in [
            ("/a%{REQUEST_URI}b", "/a${uri}b"),
            ("/a%{REQUEST_URI}/b", "/a$uri/b"),
            ("https://%{HTTP_HOST}%{REQUEST_URI}", "https://$host$uri"),
        ] {
            assert_eq!(rewrite_target(text, &[]).as_deref(), Ok(target), "{text}");
        }
    }
}
