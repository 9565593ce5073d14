//! Assembles `.htaccess` files from lines at random, for a directory and the one below it. Some are sensible, and
//! Apache rejects others. The same number always gives the same file.

/// Lines that are complete by themselves.
const LINES: &[&str] = &[
    "Require all granted",
    "Require all denied",
    "require ALL \"denied\"",
    "Require not all denied",
    "Require method GET",
    "Require method POST HEAD",
    "Require env first",
    "Require not env second",
    "Require env FIRST",
    "Require valid-user",
    "Require ip 192.0.2.1",
    "Require expr \"%{REQUEST_URI} =~ /secret/\"",
    "Require host nobody.example",
    "AuthMerging And",
    "AuthMerging Or",
    "AuthMerging Off",
    "Order allow,deny",
    "Order deny,allow",
    "Order mutual-failure",
    "Allow from all",
    "Allow from env=first",
    "Allow from env=!second",
    "Allow from 192.0.2.1",
    "Deny from all",
    "Deny from env=Second",
    "Deny from env=!first",
    "Deny from 192.0.2.1",
    "Deny from 192.0.2.2 all",
    "Satisfy Any",
    "Satisfy all",
    "SetEnvIf Request_URI secret first",
    "SetEnvIf Request_Method POST second !first",
    "SetEnvIfNoCase User-Agent EVIL second=2",
    "SetEnvIf First . second",
    "BrowserMatch . !second",
    "SetEnvIfExpr \"true\" second",
    "Redirect 404 /c/sub",
    "Redirect gone /c/data.ini",
    "RedirectMatch 403 \\.ini$",
    "RewriteEngine On",
    "RewriteEngine Off",
    "RewriteBase /c/",
    "RewriteOptions Inherit",
    "RewriteOptions InheritDown",
    "RewriteOptions InheritBefore",
    "RewriteOptions InheritDownBefore",
    "RewriteOptions IgnoreInherit",
    "RewriteCond %{REQUEST_URI} secret",
    "RewriteCond %{REQUEST_URI} !run [OR]",
    "RewriteCond %{REQUEST_FILENAME} -f",
    "RewriteCond %{REQUEST_FILENAME} !-d [OR]",
    "RewriteCond %{HTTP_USER_AGENT} EVIL [NC]",
    "RewriteCond %{REMOTE_ADDR} ^192\\.0\\.2\\.",
    "RewriteCond %{REMOTE_ADDR} !^192\\.0\\.2\\. [OR]",
    "RewriteCond %{QUERY_STRING} =a=evil",
    "RewriteCond $1 (.)(.) [NC]",
    "RewriteCond %2 =e",
    "RewriteCond %{ENV:first} 1",
    "RewriteRule ^ - [F]",
    "RewriteRule secret - [F] # a comment",
    "RewriteRule ^(.*)\\.txt$ - [G,L]",
    "RewriteRule !\\.php$ - [R=404]",
    "RewriteRule ^s - [L]",
    "RewriteRule ^s - [END]",
    "RewriteRule \\.txt$ - [S=1]",
    "RewriteRule \\.txt$ - [S=2]",
    "RewriteRule ^(run|sub) - [C]",
    "RewriteRule ^(.*)$ - [E=first:1]",
    "RewriteRule ^secret\\.txt$ index.html",
    "RewriteRule ^secret\\.txt$ index.html [L]",
    "RewriteRule ^(sub/)?secret\\.txt$ /c/$1data.ini [PT]",
    "RewriteRule ^data\\.(.*)$ run.php?$1 [L]",
    "RewriteRule ^(.*)r(.*)$ $1R$2 [N]",
    "RewriteRule \\.php$ - [H=text/plain]",
    "RewriteRule \\.txt$ - [F, L]",
    "Options -Indexes",
    "Header set X-A b",
    "ErrorDocument 404 /index.html",
    "No such line",
    "Deny \\",
    "# comment \\",
    "",
];

/// Sections, each with its closing line.
const SECTIONS: &[(&str, &str)] = &[
    ("<Files \"*.txt\">", "</Files>"),
    ("<Files ~ \"^(run|data)\">", "</Files>"),
    ("<FilesMatch \"^(?!run).*\">", "</FilesMatch>"),
    ("<filesmatch \\.php$>", "</FilesMatch>"),
    ("<Limit GET>", "</Limit>"),
    ("<Limit HEAD POST>", "</Limit>"),
    ("<LimitExcept POST>", "</LimitExcept>"),
    ("<RequireAll>", "</RequireAll>"),
    ("<RequireAny>", "</RequireAny>"),
    ("<RequireNone>", "</RequireNone>"),
    ("<IfModule mod_rewrite.c>", "</IfModule>"),
    ("<IfModule !mod_authz_core.c>", "</IfModule>"),
    ("<IfModule mod_none.c>", "</IfModule>"),
    ("<IfVersion >= 2.4>", "</IfVersion>"),
    ("<IfVersion < 2.4>", "</IfVersion>"),
    ("<IfDefine !NOBODY>", "</IfDefine>"),
    ("<If \"%{REQUEST_URI} =~ /secret/\">", "</If>"),
    ("<If \"%{REQUEST_METHOD} != 'GET'\">", "</If>"),
    ("<If \"true\">", "</If>"),
    ("<Else>", "</Else>"),
];

/// xorshift64*: the quality of the numbers does not matter.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

/// Returns the file with this number.
pub fn file(number: u64) -> String {
    // After a small seed, the first numbers would be small, too.
    let mut numbers = XorShift(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut lines = Vec::new();
    for _ in 0..=numbers.below(3) {
        some(&mut numbers, 0, &mut lines);
    }
    // Without this line, rewrite rules have no effect.
    if lines.iter().any(|line| line.starts_with("RewriteRule")) {
        lines.insert(0, "RewriteEngine On");
    }
    lines.join("\n")
}

/// Adds a few lines, or a section around some lines.
fn some(numbers: &mut XorShift, depth: usize, lines: &mut Vec<&'static str>) {
    if depth < 3 && numbers.below(3) == 0 {
        let (open, close) = SECTIONS[numbers.below(SECTIONS.len())];
        lines.push(open);
        for _ in 0..=numbers.below(2) {
            some(numbers, depth + 1, lines);
        }
        // One section in thirty is not closed.
        if numbers.below(30) > 0 {
            lines.push(close);
        }
        return;
    }
    for _ in 0..=numbers.below(3) {
        lines.push(LINES[numbers.below(LINES.len())]);
    }
}
