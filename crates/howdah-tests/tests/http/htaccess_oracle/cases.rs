//! The requests to both servers, and the `.htaccess` files that are written before them. This module contains only
//! tables.

use Strictness::{Same, Stricter};

/// How the two responses may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// The responses must be the same.
    Same,
    /// Howdah may refuse more.
    Stricter,
}

/// A request: method, target, further header lines.
pub type CaseRequest = (&'static str, &'static str, &'static str);

pub const REQUESTS: &[CaseRequest] = &[
    ("GET", "/c/secret.txt", ""),
    ("HEAD", "/c/secret.txt", ""),
    ("GET", "/c/secret.txt?a=evil", ""),
    ("GET", "/c/secret.txt", "User-Agent: evilbot\r\n"),
    (
        "GET",
        "/c/secret.txt",
        "Referer: https://other.example/\r\n",
    ),
    ("GET", "/c//%73ecret.txt", ""),
    ("GET", "/c/x/../secret.txt", ""),
    ("GET", "/c/data.ini", ""),
    ("GET", "/c/run.php", ""),
    ("POST", "/c/run.php", ""),
    ("GET", "/c/run.php/info", ""),
    ("GET", "/c/run.php/secret.txt", ""),
    ("GET", "/c/sub/secret.txt", ""),
    ("GET", "/c/sub/run.php", ""),
    ("GET", "/c/", ""),
    ("GET", "/c", ""),
    ("GET", "/c/sub/", ""),
    ("GET", "/c/none.txt", ""),
    ("GET", "/c/none/secret.txt", ""),
    ("GET", "/secret.txt", ""),
    ("GET", "/run.php", ""),
    ("GET", "/", ""),
];

/// Texts that are written to `/c/.htaccess`, and then to the `.htaccess` of the root.
pub const EVERYWHERE: &[(Strictness, &str)] = &[
    (Same, ""),
    (Same, "Require all denied"),
    (Same, "Require all granted"),
    (Same, "Deny from all"),
    (Same, "Order deny,allow\nDeny from all\nAllow from none"),
    (Same, "Order allow,deny"),
    (Same, "Order allow,deny\nAllow from all"),
    (Same, "Order deny,allow\nAllow from all"),
    (Same, "Order deny,allow\nDeny from all\nAllow from all"),
    (Same, "Order allow,deny\nDeny from all\nAllow from all"),
    (Same, "Deny from all\nRequire all granted"),
    (Same, "Allow from all\nRequire all denied"),
    (Same, "Deny from all\nRequire all granted\nSatisfy Any"),
    (Same, "Deny from all\nRequire all denied\nSatisfy Any"),
    (Same, "Deny from all\nSatisfy Any"),
    (
        Same,
        "<IfVersion >= 2.4>\nRequire all denied\n</IfVersion>\n<IfVersion < 2.4>\nAllow from none\nDeny from all\n</IfVersion>",
    ),
    (
        Same,
        "<IfModule mod_authz_core.c>\nRequire all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nOrder deny,allow\nDeny from all\n</IfModule>",
    ),
    (
        Same,
        "<IfModule !mod_rewrite.c>\nRequire all denied\n</IfModule>",
    ),
    (
        Same,
        "<IfModule mod_none.c>\nNo such directive\n<Files x>\n</Files>\n</IfModule>",
    ),
    (
        Same,
        "<IfDefine NOBODY_DEFINES_THIS>\nRequire all denied\n</IfDefine>",
    ),
    (Same, "<Files \"*\">\nRequire all denied\n</Files>"),
    (Same, "<Files secret.txt>\nRequire all denied\n</Files>"),
    (Same, "<Files \"*.ini\">\nRequire all denied\n</Files>"),
    (Same, "<Files ~ \"\\.(txt|ini)$\">\nDeny from all\n</Files>"),
    (
        Same,
        "<FilesMatch \"^(secret|run)\\.\">\nRequire all denied\n</FilesMatch>",
    ),
    (
        Same,
        "<FilesMatch \"^(?!run).*$\">\nRequire all denied\n</FilesMatch>",
    ),
    (
        Same,
        "Require all denied\n<FilesMatch \"\\.txt$\">\nRequire all granted\n</FilesMatch>",
    ),
    (
        Same,
        "<Files *.txt>\nRequire all denied\n</Files>\n<Files secret.*>\nRequire all granted\n</Files>",
    ),
    (
        Same,
        "Deny from all\n<Files *.txt>\nRequire all granted\n</Files>",
    ),
    (
        Same,
        "Deny from all\n<Files *.txt>\nAllow from all\nSatisfy any\n</Files>",
    ),
    (
        Same,
        "<RequireAll>\nRequire all granted\nRequire all denied\n</RequireAll>",
    ),
    (
        Same,
        "<RequireAny>\nRequire all denied\nRequire all granted\n</RequireAny>",
    ),
    (
        Same,
        "<RequireAny>\n<RequireAll>\nRequire all granted\nRequire method GET\n</RequireAll>\n</RequireAny>",
    ),
    (
        Same,
        "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire method POST\n</RequireNone>\n</RequireAll>",
    ),
    (Same, "Require method GET"),
    (Same, "Require method HEAD"),
    (Same, "<Limit HEAD>\nRequire all denied\n</Limit>"),
    (
        Same,
        "<LimitExcept HEAD OPTIONS>\nRequire all denied\n</LimitExcept>",
    ),
    (
        Stricter,
        "<Limit GET>\nRequire all denied\nRequire method PUT\n</Limit>",
    ),
    (
        Same,
        "SetEnvIf User-Agent evilbot Bad\nOrder allow,deny\nAllow from all\nDeny from env=BAD",
    ),
    (Same, "Require env nowhere"),
    (Same, "<Limit GET>\nRequire all denied\n</Limit>"),
    (Same, "<Limit POST>\nRequire all denied\n</Limit>"),
    (
        Same,
        "<LimitExcept GET>\nRequire all denied\n</LimitExcept>",
    ),
    (Same, "<Limit POST>\nDeny from all\n</Limit>"),
    (
        Same,
        "<LimitExcept POST>\nOrder deny,allow\nDeny from all\n</LimitExcept>",
    ),
    (
        Same,
        "<Limit GET>\nRequire all denied\n</Limit>\nRequire all granted",
    ),
    (
        Same,
        "<RequireAll>\n<Limit POST>\nRequire all denied\n</Limit>\nRequire all granted\n</RequireAll>",
    ),
    (
        Same,
        "SetEnvIf User-Agent evilbot bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
    ),
    (
        Same,
        "SetEnvIfNoCase Referer other out\nOrder deny,allow\nDeny from env=out",
    ),
    (
        Same,
        "BrowserMatch evil bad\n<RequireAll>\nRequire all granted\nRequire not env bad\n</RequireAll>",
    ),
    (
        Same,
        "SetEnvIf Request_URI secret let_in\nOrder deny,allow\nDeny from all\nAllow from env=let_in",
    ),
    (
        Same,
        "SetEnvIf User-Agent . known\nSetEnvIf User-Agent evil !known\nRequire env known",
    ),
    (Same, "RewriteEngine On\nRewriteRule ^ - [F]"),
    (Same, "RewriteEngine On\nRewriteRule secret - [F,L]"),
    (
        Same,
        "RewriteEngine On\nRewriteRule (^|/)secret\\.txt$ - [G]",
    ),
    (Same, "RewriteEngine On\nRewriteRule .* - [R=404,L]"),
    (Same, "RewriteEngine On\nRewriteRule ^SECRET - [NC,R=403]"),
    (Same, "RewriteRule ^ - [F]"),
    (Same, "RewriteEngine Off\nRewriteRule ^ - [F]"),
    (
        Same,
        "RewriteEngine On\nRewriteRule \\.txt$ - [L]\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule \\.txt$ - [S=1]\nRewriteRule ^ - [F]\nRewriteRule secret - [G]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule \\.ini$ - [C]\nRewriteRule ^ - [F]",
    ),
    (Same, "RewriteEngine On\nRewriteRule !\\.php - [F]"),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} evil\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} EVIL [NC]\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{HTTP_REFERER} !^$\nRewriteCond %{HTTP_REFERER} !^http://localhost\nRewriteRule \\.txt$ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_URI} sub [OR]\nRewriteCond %{REQUEST_URI} data\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} -f\nRewriteRule \\.txt$ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_METHOD} ^POST$\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_METHOD} =POST\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond $1 =run.php\nRewriteRule ^(.*)$ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{THE_REQUEST} \\ /c/run\\.php\nRewriteRule ^ - [F]",
    ),
    (
        Stricter,
        "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule ^ run.php [L]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule secret - [F] # and no more",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REQUEST_URI} SECRET [NC] and more\nRewriteRule ^ - [F]",
    ),
    (
        Stricter,
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^192\\.0\\.2\\.\nRewriteRule ^(c/)?secret /run.php [L]",
    ),
    (Same, "RewriteEngine On\nRewriteRule ^.*(?<!\\.txt)$ - [F]"),
    (Same, "RewriteEngine On\nRewriteRule ^(.)(.)\\2 - [F]"),
    (Same, "RewriteEngine On\nRewriteRule \"^(sub|c)/\" - [F]"),
    (Same, "RedirectMatch 403 .*"),
    (Same, "RedirectMatch 404 \"^/c/(secret|sub)\""),
    (Same, "RedirectMatch gone \\.ini$"),
    (Same, "Redirect 404 /c/sub"),
    (Same, "Redirect gone /c/secret.txt"),
    (Same, "Redirect 403 /c/se"),
    (Same, "Require \\\r\n all denied\r\n"),
    (Same, "\"Require\" \"all\" denied"),
    (Same, "AuthType Basic\nAuthName x"),
    (
        Same,
        "AuthName \"a b\"\nAuthType Basic\nAuthUserFile /nowhere\nRequire valid-user",
    ),
    (Same, "Require ip 192.0.2.0/24"),
    (Same, "Require host nobody.example"),
    (
        Same,
        "Order deny,allow\nDeny from all\nAllow from 192.0.2.1",
    ),
    (Same, "Require expr \"%{REQUEST_METHOD} == 'BREW'\""),
    (
        Stricter,
        "Order allow,deny\nAllow from all\nDeny from 192.0.2.1",
    ),
    (
        Stricter,
        "<RequireAll>\nRequire all granted\nRequire not ip 192.0.2.1\n</RequireAll>",
    ),
    (
        Same,
        "<If \"%{REQUEST_URI} =~ /secret/\">\nRequire all denied\n</If>",
    ),
    (
        Same,
        "<If \"%{REQUEST_URI} !~ m#SECRET#i\">\nRequire all denied\n</If>\nRequire all granted",
    ),
    (
        Same,
        "Require all denied\n<If \"%{REQUEST_METHOD} == 'POST'\">\nRequire all granted\n</If>",
    ),
    (
        Stricter,
        "<If \"%{REQUEST_URI} =~ /secret/ && true\">\nRequire all granted\n</If>",
    ),
    (
        Stricter,
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} ^192\\.0\\.2\\.\nRewriteRule ^ - [F]",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^192\\.0\\.2\\.\nRewriteRule ^ - [F]",
    ),
    // Apache may send the source, or run the script anyway.
    (Stricter, "php_flag engine off"),
    (Stricter, "<Files *>\nSetHandler none\n</Files>"),
    (Stricter, "RemoveHandler .php\nRemoveType .php"),
    (
        Stricter,
        "<FilesMatch \"\\.php$\">\nForceType text/plain\n</FilesMatch>",
    ),
    // Files in the directory are not sent; at the rule's target there can only be a front controller.
    (
        Stricter,
        "RewriteEngine On\nRewriteRule ^secret\\.txt$ /run.php [L]",
    ),
    (
        Stricter,
        "RewriteEngine On\nRewriteRule ^(c/)?(secret\\.txt|sub/.*)$ /run.php?x=$2 [L]",
    ),
];

/// Texts with mistakes, which are written only to `/c/.htaccess`: in the root, mistakes are ignored.
pub const MISTAKES: &[&str] = &[
    "No such directive",
    "Require",
    "Require all maybe",
    "Require fortune good",
    "Order sideways",
    "<Files x>\nRequire all granted",
    "</Files>",
    "<Files x>\n</FilesMatch>",
    "\u{feff}Options -Indexes",
    "RewriteEngine On\nRewriteRule ( - [F]",
    "RewriteEngine On\nRewriteRule ^ - [NOSUCHFLAG]",
    "RewriteEngine perhaps",
    "RewriteEngine On\nRewriteRule ^other - [F, L]",
    "RewriteEngine On\nRewriteRule [\\w-.]x - [F]",
    "RewriteEngine On\nRewriteRule [..] - [F]",
    "<Files x>\nRewriteEngine perhaps\n</Files>",
    "<If \"false\">\nRewriteRule ( -\n</If>",
    "<Limit get>\nRequire all denied\n</Limit>",
    "<Limit TRACE>\nRequire all denied\n</Limit>",
    "Require method get",
    "Require all granted # to everybody",
    "<FilesMatch \"(\">\n</FilesMatch>",
    "<Location />\nRequire all granted\n</Location>",
    "php_admin_flag engine on",
    "Satisfy some",
];

/// The `.htaccess` files of the root, of `/c` and of `/c/sub`.
pub const INHERITED: &[(Strictness, &str, &str, &str)] = &[
    (Same, "Require all denied", "Require all granted", ""),
    (
        Same,
        "Require all granted",
        "Require all denied",
        "Require all granted",
    ),
    (Same, "Deny from all", "Require all granted", ""),
    (Same, "Deny from all", "Allow from all", ""),
    (Same, "Deny from all\nSatisfy any", "Require all denied", ""),
    (
        Same,
        "Require all denied",
        "AuthMerging And\nRequire all granted",
        "",
    ),
    (
        Same,
        "Require all granted",
        "AuthMerging Or\nRequire all denied",
        "",
    ),
    (
        Same,
        "<Files *.txt>\nRequire all denied\n</Files>",
        "Require all granted",
        "",
    ),
    (
        Same,
        "<Files *.txt>\nRequire all denied\n</Files>",
        "<Files secret.*>\nRequire all granted\n</Files>",
        "",
    ),
    (Same, "RewriteEngine On\nRewriteRule ^c/ - [F]", "", ""),
    (
        Same,
        "RewriteEngine On\nRewriteRule ^c/ - [F]",
        "RewriteEngine On",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule ^c/ - [F]",
        "",
        "RewriteEngine Off",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule ^c/ - [F]",
        "RewriteBase /c/",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule secret - [F]",
        "RewriteOptions Inherit",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteRule secret - [F]",
        "RewriteEngine On\nRewriteOptions Inherit\nRewriteRule \\.ini$ - [F]",
        "",
    ),
    (
        Same,
        "RewriteEngine On\nRewriteOptions InheritDown\nRewriteRule secret - [F]",
        "RewriteEngine On\nRewriteRule \\.ini$ - [F]",
        "",
    ),
    (Same, "RewriteEngine On", "RewriteRule ^ - [F]", ""),
    (
        Same,
        "Redirect 404 /c/sub",
        "Require all granted",
        "Require all granted",
    ),
    (
        Same,
        "<Limit GET>\nRequire all denied\n</Limit>",
        "",
        "Require all granted",
    ),
    (
        Same,
        "",
        "RewriteEngine On\nRewriteRule ^sub/ - [F]",
        "Options -Indexes",
    ),
    (Same, "SetEnvIf Request_URI secret in", "Require env in", ""),
    (Stricter, "", "Require ip 127.0.0.1", "Require all granted"),
    (
        Stricter,
        "",
        "<If \"true\">\nRequire all granted\n</If>",
        "Require all granted",
    ),
    // These rules are not evaluated: in the root they restrict no client.
    (
        Stricter,
        "",
        "SetEnvIf Request_URI secret first\nSetEnvIf FIRST . bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
        "",
    ),
    (
        Stricter,
        "",
        "SetEnvIf ^Ho localhost bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
        "",
    ),
    (
        Stricter,
        "",
        "SetEnvIfExpr \"%{REQUEST_URI} =~ /secret/\" bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
        "",
    ),
    (
        Stricter,
        "",
        "<Files \"*.txt\">\nRewriteEngine On\nRewriteRule ^ - [F]\n</Files>",
        "",
    ),
];
