//! `.htaccess` files, and requests to which Apache and Howdah respond alike with `htaccess = "on"`, in the forms in
//! which applications and people write them.

/// A title, files (path and text), and requests: method, target, headers.
pub type LiveCase = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str, &'static str)],
);

/// All cases. `@USERS@` and `@GROUPS@` are replaced by the paths of files.
pub const LIVE: &[LiveCase] = &[
    (
        "redirects",
        &[(
            ".htaccess",
            r#"Redirect 301 /old /new
Redirect permanent /p http://x.example/y
RedirectMatch 302 ^/m/(.*)$ /n/$1?z=1
Redirect gone /g
Redirect 403 /f
RedirectMatch 404 \.secret$
RedirectTemp /t https://t.example/
"#,
        )],
        &[
            ("GET", "/old", ""),
            ("GET", "/old/a/b?x=1", ""),
            ("GET", "/p", ""),
            ("GET", "/p/q", ""),
            ("GET", "/m/abc?q=1", ""),
            ("GET", "/g", ""),
            ("GET", "/f", ""),
            ("GET", "/x.secret", ""),
            ("GET", "/t", ""),
            ("GET", "/oldx", ""),
            ("GET", "/old/%C3%A4", ""),
        ],
    ),
    (
        "r=301",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^a$ /b [R=301,L]
RewriteRule ^c$ /d?x=1 [R,L]
RewriteRule ^e$ http://other.example/f [L]
RewriteRule ^g$ /h? [R=302,L]
RewriteRule ^i$ /j [R=303,QSA,L]
RewriteRule ^k$ - [F]
RewriteRule ^l$ - [G]
RewriteRule ^m$ - [R=404]
RewriteRule ^n/(.*)$ /o/$1 [R=301,NE,L]
RewriteRule ^q$ /r?a=%{QUERY_STRING}&b [R,L]
"#,
        )],
        &[
            ("GET", "/a", ""),
            ("GET", "/a?q=1", ""),
            ("GET", "/c?y=2", ""),
            ("GET", "/e?q", ""),
            ("GET", "/g?q=1", ""),
            ("GET", "/i?z=1", ""),
            ("GET", "/k", ""),
            ("GET", "/l", ""),
            ("GET", "/m", ""),
            ("GET", "/n/a%20b", ""),
            ("GET", "/n/a%23b", ""),
            ("GET", "/q?x=y%20z", ""),
        ],
    ),
    (
        "front controller",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteBase /
RewriteRule ^index\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
"#,
        )],
        &[
            ("GET", "/", ""),
            ("GET", "/a/b/c?x=1", ""),
            ("GET", "/x.txt", ""),
            ("GET", "/d", ""),
            ("GET", "/d/", ""),
            ("GET", "/index.php/foo", ""),
            ("GET", "/x.php/foo", ""),
            ("GET", "/d/none", ""),
        ],
    ),
    (
        "ci style",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond $1 !^(index\.php|images|x\.txt)
RewriteRule ^(.*)$ index.php/$1 [L]
"#,
        )],
        &[
            ("GET", "/", ""),
            ("GET", "/a/b", ""),
            ("GET", "/x.txt", ""),
            ("GET", "/images/z", ""),
        ],
    ),
    (
        "qsa",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule ^(.*)$ index.php?q=$1 [L,QSA]
"#,
        )],
        &[
            ("GET", "/a/b?x=1", ""),
            ("GET", "/a%20b", ""),
            ("GET", "/a%3Fb", ""),
            ("GET", "/a+b", ""),
            ("GET", "/a%26b", ""),
            ("GET", "/a%25b", ""),
            ("GET", "/a%0Ab", ""),
            ("GET", "/a%2Fb", ""),
        ],
    ),
    (
        "B flag",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule ^(.*)$ index.php?q=$1 [B,L]
"#,
        )],
        &[
            ("GET", "/a/b?x=1", ""),
            ("GET", "/a%20b", ""),
            ("GET", "/a%3Fb", ""),
            ("GET", "/a+b", ""),
            ("GET", "/a%26b", ""),
            ("GET", "/a%25b", ""),
        ],
    ),
    (
        "subdir base",
        &[(
            "d/.htaccess",
            r#"RewriteEngine On
RewriteBase /d/
RewriteRule ^go/(.*)$ x.php?p=$1 [L]
RewriteRule ^abs$ /x.php?abs [L]
RewriteRule ^red$ rel/target [R,L]
"#,
        )],
        &[
            ("GET", "/d/go/a", ""),
            ("GET", "/d/abs", ""),
            ("GET", "/d/red", ""),
            ("GET", "/d", ""),
        ],
    ),
    (
        "subdir nobase",
        &[(
            "d/.htaccess",
            r#"RewriteEngine On
RewriteRule ^go/(.*)$ x.php?p=$1 [L]
RewriteRule ^red$ rel/target [R,L]
RewriteRule ^r2$ /rel/target [R,L]
"#,
        )],
        &[
            ("GET", "/d/go/a", ""),
            ("GET", "/d/red", ""),
            ("GET", "/d/r2", ""),
        ],
    ),
    (
        "deep override",
        &[
            (
                ".htaccess",
                r#"RewriteEngine On
RewriteRule ^d/(.*)$ x.php?root=$1 [L]
"#,
            ),
            (
                "d/.htaccess",
                r#"RewriteEngine On
"#,
            ),
        ],
        &[("GET", "/d/none", ""), ("GET", "/x.txt", "")],
    ),
    (
        "deep inherit",
        &[
            (
                ".htaccess",
                r#"RewriteEngine On
RewriteRule (.*)x\.txt$ x.php?root=$1 [L]
"#,
            ),
            (
                "d/.htaccess",
                r#"RewriteEngine On
RewriteOptions Inherit
RewriteRule ^y$ x.php?own [L]
"#,
            ),
        ],
        &[
            ("GET", "/d/x.txt", ""),
            ("GET", "/d/y", ""),
            ("GET", "/x.txt", ""),
        ],
    ),
    (
        "env",
        &[(
            ".htaccess",
            r#"RewriteEngine On
SetEnv MY_A one
SetEnvIf User-Agent "(Moz)" MY_UA=$1 MY_B
RewriteRule ^e$ x.php [E=MY_E:%{HTTP_HOST},L]
RewriteRule ^f$ - [E=MY_F:1]
RewriteRule ^f$ x.php [L]
SetEnvIfNoCase X-Forwarded-Proto https HTTPS=on
BrowserMatch ^Curl MY_C
UnsetEnv MY_Z
"#,
        )],
        &[
            ("GET", "/x.php", "User-Agent: Moz\r\n"),
            ("GET", "/e", ""),
            ("GET", "/f", ""),
            ("GET", "/x.php", "X-Forwarded-Proto: HTTPS\r\n"),
        ],
    ),
    (
        "headers",
        &[(
            ".htaccess",
            r#"Header set X-A "1"
Header always set X-B "2"
Header append X-A more
Header merge X-M a
Header merge X-M a
Header add X-C 1
Header add X-C 2
Header unset X-Frame-Options
Header always unset Cache-Control
Header set X-T "%{MY_A}e %{NOPE}e 100%%"
SetEnv MY_A x
Header edit Cache-Control private public
Header set X-E "1" env=MY_A
Header set X-F "1" env=!MY_A
Header set X-G "expr=%{REQUEST_URI}"
Header set X-H yes "expr=%{CONTENT_TYPE} =~ m#html#"
<FilesMatch "\.css$">
Header set X-Css 1
</FilesMatch>
Header setifempty X-A z
Header setifempty X-N z
"#,
        )],
        &[
            ("GET", "/x.php?hdr=1", ""),
            ("GET", "/x.txt", ""),
            ("GET", "/x.css", ""),
            ("GET", "/none", ""),
            ("GET", "/d", ""),
            ("GET", "/x.html", ""),
        ],
    ),
    (
        "named groups of FilesMatch",
        &[(
            ".htaccess",
            r#"<FilesMatch "^(?<name>[a-z]+)\.(?<kind>txt|css|php)$">
Header set X-Match "%{MATCH_NAME}e %{MATCH_KIND}e"
</FilesMatch>
<FilesMatch "^(?!z)(?<name>.)">
Header set X-First "%{MATCH_NAME}e" env=MATCH_KIND
</FilesMatch>
"#,
        )],
        &[
            ("GET", "/x.php", ""),
            ("GET", "/x.txt", ""),
            ("GET", "/x.css", ""),
            ("GET", "/x.html", ""),
        ],
    ),
    (
        "types of names whose last extension is unknown",
        &[
            (".htaccess", "Header set X-A 1\n"),
            ("app.js.br", "x"),
            ("page.html.1", "x"),
            ("plain.1", "x"),
            (".html.1", "x"),
            ("t/.htaccess", "AddType text/x-own .own\n"),
            ("t/app.css.own.br", "x"),
        ],
        &[
            ("GET", "/app.js.br", ""),
            ("GET", "/page.html.1", ""),
            ("GET", "/plain.1", ""),
            ("GET", "/t/app.css.own.br", ""),
        ],
    ),
    (
        "a lifetime for what is missing",
        &[(
            ".htaccess",
            "Header always set Cache-Control \"max-age=600\"\n",
        )],
        &[("GET", "/none", ""), ("HEAD", "/none", "")],
    ),
    (
        "headers of the request in the environment",
        &[(
            ".htaccess",
            r#"Header set X-Origin "%{HTTP_ORIGIN}e"
Header set X-Agent "%{HTTP_USER_AGENT}e" env=HTTP_USER_AGENT
Header set X-Nobody "1" env=!HTTP_X_OWN
Header always set X-Own "%{HTTP_X_OWN}e" env=HTTP_X_OWN
Header set X-Login "%{HTTP_AUTHORIZATION}e"
Header set X-Proxy "%{HTTP_PROXY}e"
"#,
        )],
        &[
            ("GET", "/x.php", "Origin: https://a.test\r\nX-Own: 1\r\n"),
            (
                "GET",
                "/x.php",
                "User-Agent: Own/1\r\nProxy: p\r\nAuthorization: Basic YTpi\r\n",
            ),
            ("GET", "/x.txt", "Origin: https://a.test\r\nX-Own: 1\r\n"),
            ("GET", "/none", "Origin: https://a.test\r\nX-Own: 1\r\n"),
        ],
    ),
    (
        "request header",
        &[(
            ".htaccess",
            r#"RequestHeader set X-Added "v"
RequestHeader unset X-Gone
RequestHeader append X-More b
"#,
        )],
        &[("GET", "/x.php", "X-Gone: 1\r\nX-More: a\r\n")],
    ),
    (
        "expires",
        &[(
            ".htaccess",
            r#"ExpiresActive On
ExpiresDefault "access plus 1 month"
ExpiresByType text/css A3600
ExpiresByType image/jpeg "access plus 1 year 2 days"
ExpiresByType text/html "now"
ExpiresByType application/javascript M600
"#,
        )],
        &[
            ("GET", "/x.css", ""),
            ("GET", "/x.jpg", ""),
            ("GET", "/x.html", ""),
            ("GET", "/x.txt", ""),
            ("GET", "/x.php", ""),
            ("GET", "/x.php?hdr=1", ""),
            ("GET", "/none", ""),
            ("GET", "/x.js", ""),
            ("GET", "/x.css", "If-None-Match: *\r\n"),
            ("GET", "/x.jpg", "If-None-Match: *\r\n"),
            ("GET", "/x.txt", "If-None-Match: *\r\n"),
            ("GET", "/x.html", "If-None-Match: *\r\n"),
        ],
    ),
    (
        "headers of a 304",
        &[(
            ".htaccess",
            r#"Header set Content-Security-Policy "default-src 'self'"
Header set Content-Security-Policy-Report-Only "default-src 'none'"
Header set X-A b
"#,
        )],
        &[
            ("GET", "/x.css", ""),
            ("GET", "/x.css", "If-None-Match: *\r\n"),
        ],
    ),
    (
        "types",
        &[(
            ".htaccess",
            r#"AddType text/x-foo .foo
AddType application/x-bar bar baz
AddCharset utf-8 .txt .css
AddEncoding x-gzip .tgz2
AddLanguage de .de
ForceType none
RemoveType .jpg
AddDefaultCharset utf-8
<Files x.xml>
ForceType application/x-forced
</Files>
"#,
        )],
        &[
            ("GET", "/x.foo", ""),
            ("GET", "/x.bar", ""),
            ("GET", "/x.txt", ""),
            ("GET", "/x.css", ""),
            ("GET", "/x.tgz2", ""),
            ("GET", "/x.html.de", ""),
            ("GET", "/x.jpg", ""),
            ("GET", "/x.xml", ""),
            ("GET", "/x.html", ""),
            ("GET", "/x.php", ""),
        ],
    ),
    (
        "access",
        &[
            (
                "d/.htaccess",
                r#"Require all denied
"#,
            ),
            (
                "e/.htaccess",
                r#"Order deny,allow
Deny from all
"#,
            ),
            (
                "f/.htaccess",
                r#"Require ip 127.0.0.1
"#,
            ),
            (
                "g/.htaccess",
                r#"Order allow,deny
Allow from 127.
Deny from 10.0.0.0/8
"#,
            ),
            (
                "h/.htaccess",
                r#"<Files x.txt>
Require all denied
</Files>
<FilesMatch "\.(css|js)$">
Order allow,deny
Deny from all
</FilesMatch>
"#,
            ),
            (
                "i/.htaccess",
                r#"Require not ip 10.0.0.1
"#,
            ),
            (
                "j/.htaccess",
                r#"<RequireAll>
Require all granted
Require not ip 127.0.0.1
</RequireAll>
"#,
            ),
            (
                "k/.htaccess",
                r#"<RequireAny>
Require ip 10.1
Require local
</RequireAny>
"#,
            ),
            (
                "l/.htaccess",
                r#"<Limit POST>
Require all denied
</Limit>
"#,
            ),
            (
                "m/.htaccess",
                r#"<LimitExcept GET POST>
Deny from all
</LimitExcept>
"#,
            ),
            (
                "n/.htaccess",
                r#"SetEnvIf Referer evil bad
Order allow,deny
Allow from all
Deny from env=bad
"#,
            ),
        ],
        &[
            ("GET", "/d/x.txt", ""),
            ("GET", "/d/x.css", ""),
            ("GET", "/d/none", ""),
            ("GET", "/d/x.php", ""),
            ("GET", "/e/x.txt", ""),
            ("GET", "/e/x.css", ""),
            ("GET", "/e/none", ""),
            ("GET", "/e/x.php", ""),
            ("GET", "/f/x.txt", ""),
            ("GET", "/f/x.css", ""),
            ("GET", "/f/none", ""),
            ("GET", "/f/x.php", ""),
            ("GET", "/g/x.txt", ""),
            ("GET", "/g/x.css", ""),
            ("GET", "/g/none", ""),
            ("GET", "/g/x.php", ""),
            ("GET", "/h/x.txt", ""),
            ("GET", "/h/x.css", ""),
            ("GET", "/h/none", ""),
            ("GET", "/h/x.php", ""),
            ("GET", "/i/x.txt", ""),
            ("GET", "/i/x.css", ""),
            ("GET", "/i/none", ""),
            ("GET", "/i/x.php", ""),
            ("GET", "/j/x.txt", ""),
            ("GET", "/j/x.css", ""),
            ("GET", "/j/none", ""),
            ("GET", "/j/x.php", ""),
            ("GET", "/k/x.txt", ""),
            ("GET", "/k/x.css", ""),
            ("GET", "/k/none", ""),
            ("GET", "/k/x.php", ""),
            ("GET", "/l/x.txt", ""),
            ("GET", "/l/x.css", ""),
            ("GET", "/l/none", ""),
            ("GET", "/l/x.php", ""),
            ("GET", "/m/x.txt", ""),
            ("GET", "/m/x.css", ""),
            ("GET", "/m/none", ""),
            ("GET", "/m/x.php", ""),
            ("GET", "/n/x.txt", ""),
            ("GET", "/n/x.css", ""),
            ("GET", "/n/none", ""),
            ("GET", "/n/x.php", ""),
            ("GET", "/n/x.txt", "Referer: http://evil/\r\n"),
            ("POST", "/l/x.php", ""),
            ("POST", "/m/x.php", ""),
            ("PUT", "/m/x.php", ""),
        ],
    ),
    (
        "errordoc",
        &[
            (
                ".htaccess",
                r#"ErrorDocument 404 /x.php
ErrorDocument 403 "Sorry, <b>no</b>"
ErrorDocument 410 http://x.example/gone
ErrorDocument 500 /error.html
Redirect gone /gone
Redirect 403 /no
Header set X-S 1
Header always set X-Al 1
"#,
            ),
            (
                "d/.htaccess",
                r#"Require all denied
ErrorDocument 403 /error.html
"#,
            ),
        ],
        &[
            ("GET", "/none", ""),
            ("GET", "/none?a=b", ""),
            ("GET", "/gone", ""),
            ("GET", "/no", ""),
            ("GET", "/d/x.txt", ""),
            ("GET", "/none.php", ""),
            ("POST", "/none", ""),
        ],
    ),
    (
        "errordoc missing",
        &[(
            ".htaccess",
            r#"ErrorDocument 404 /nothere.html
"#,
        )],
        &[("GET", "/none", "")],
    ),
    (
        "loop",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^(.*)$ a/$1 [L]
"#,
        )],
        &[("GET", "/x.txt", "")],
    ),
    (
        "loop2",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^a$ /b [L]
RewriteRule ^b$ /a [L]
"#,
        )],
        &[("GET", "/a", "")],
    ),
    (
        "end",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^a$ b [END]
RewriteRule ^b$ x.php?b [L]
"#,
        )],
        &[("GET", "/a", ""), ("GET", "/b", "")],
    ),
    (
        "chain skip",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^a - [C]
RewriteRule b$ x.php?ab [L]
RewriteRule ^s - [S=1]
RewriteRule ^s x.php?skipped [L]
RewriteRule ^s x.php?s [L]
RewriteRule ^n(.*)n(.*)$ n$1m$2 [N]
RewriteRule ^nm+$ x.php?n [L]
"#,
        )],
        &[
            ("GET", "/ab", ""),
            ("GET", "/ac", ""),
            ("GET", "/s", ""),
            ("GET", "/nnnn", ""),
            ("GET", "/nm", ""),
        ],
    ),
    (
        "cookie co",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^c$ x.php [CO=name:val:.example.test:60:/p:secure:httponly,L]
RewriteRule ^c2$ /x [CO=;a;b;c,R,L]
"#,
        )],
        &[("GET", "/c2", ""), ("GET", "/c", "")],
    ),
    (
        "conds",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond %{QUERY_STRING} ^a=(\d+)$ [OR]
RewriteCond %{QUERY_STRING} ^b=(\w+)$
RewriteRule ^q$ x.php?m=%1 [L]
RewriteCond %{HTTP_COOKIE} sess=([^;]+) [NC]
RewriteRule ^ck$ x.php?c=%1 [L]
RewriteCond %{REQUEST_METHOD} =POST
RewriteRule ^me$ x.php?post [L]
RewriteCond %{THE_REQUEST} \s/+the\s
RewriteRule ^ x.php?the [L]
RewriteCond %{HTTPS} off
RewriteCond %{HTTP:X-Forwarded-Proto} !=https
RewriteRule ^sec https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]
RewriteCond %{REQUEST_URI}::$1 ^(/.+)/(.*)::\2$
RewriteRule ^(bb.*)$ - [E=BASE:%1]
RewriteCond %{REMOTE_ADDR} ^127\.
RewriteRule ^ra$ x.php?ra=%{REMOTE_ADDR}&p=%{SERVER_PORT}&n=%{SERVER_NAME}&s=%{REQUEST_SCHEME} [L]
RewriteCond %{DOCUMENT_ROOT}/x.txt -f
RewriteRule ^dr$ x.php?dr [L]
RewriteCond expr "%{REQUEST_URI} =~ m#^/ex(.*)#"
RewriteRule ^ex x.php?ex=%1 [L]
RewriteCond %{TIME_YEAR} >2000
RewriteRule ^ty$ x.php?ty [L]
RewriteCond %{HTTP_HOST} ^www\.(.+)$ [NC]
RewriteRule ^(.*)$ http://%1/$1 [R=301,L]
"#,
        )],
        &[
            ("GET", "/q?a=12", ""),
            ("GET", "/q?b=zz", ""),
            ("GET", "/q?c=1", ""),
            ("GET", "/ck", "Cookie: x=1; SESS=abc; y=2\r\n"),
            ("POST", "/me", ""),
            ("GET", "/the", ""),
            ("GET", "/sec/a?b=c", ""),
            ("GET", "/sec", "X-Forwarded-Proto: https\r\n"),
            ("GET", "/ra", ""),
            ("GET", "/dr", ""),
            ("GET", "/exabc", ""),
            ("GET", "/ty", ""),
            ("GET", "/foo/bar?x=1", "Host: www.example.test\r\n"),
            ("GET", "/bb", ""),
        ],
    ),
    (
        "if",
        &[(
            ".htaccess",
            r#"<If "%{REQUEST_URI} =~ m#/x\.txt#">
Header set X-If 1
</If>
<ElseIf "%{QUERY_STRING} == 'e'">
Header set X-If 2
</ElseIf>
<Else>
Header set X-If 3
</Else>
<If "-z req('X-No') && %{REQUEST_METHOD} in {'GET','HEAD'}">
Header set X-Z 1
</If>
<If "%{HTTP_USER_AGENT} =~ /bad/">
Require all denied
</If>
"#,
        )],
        &[
            ("GET", "/x.txt", ""),
            ("GET", "/x.css?e", ""),
            ("GET", "/x.css", ""),
            ("GET", "/x.css", "User-Agent: a bad bot\r\n"),
            ("GET", "/x.txt", "X-No: 1\r\n"),
        ],
    ),
    (
        "diridx",
        &[
            (
                ".htaccess",
                r#"DirectoryIndex x.html index.php
"#,
            ),
            (
                "d/.htaccess",
                r#"DirectoryIndex disabled
"#,
            ),
            (
                "e/.htaccess",
                r#"DirectorySlash Off
"#,
            ),
            (
                "f/.htaccess",
                r#"DirectoryIndex /x.php
"#,
            ),
            (
                "g/.htaccess",
                r#"FallbackResource /x.php
"#,
            ),
            (
                "h/.htaccess",
                r#"FallbackResource index.php
"#,
            ),
            (
                "i/.htaccess",
                r#"DirectoryIndex none.html
"#,
            ),
        ],
        &[
            ("GET", "/", ""),
            ("GET", "/d/", ""),
            ("GET", "/e", ""),
            ("GET", "/e/", ""),
            ("GET", "/f/", ""),
            ("GET", "/g/none", ""),
            ("GET", "/g/a/b?x=1", ""),
            ("GET", "/g/", ""),
            ("GET", "/h/none", ""),
            ("GET", "/i/", ""),
            ("GET", "/g/none.php", ""),
            ("GET", "/g/x.txt/y", ""),
            ("GET", "/d", ""),
        ],
    ),
    (
        "php",
        &[
            (
                ".htaccess",
                r#"php_value memory_limit 77M
php_flag display_errors on
php_value upload_max_filesize 9M
"#,
            ),
            (
                "d/.htaccess",
                r#"php_value memory_limit 66M
"#,
            ),
        ],
        &[("GET", "/x.php", ""), ("GET", "/d/x.php", "")],
    ),
    (
        "mistakes",
        &[
            (
                "d/.htaccess",
                r#"Foo bar
"#,
            ),
            (
                "e/.htaccess",
                r#"Require all
"#,
            ),
            (
                "f/.htaccess",
                r#"<IfModule x>
"#,
            ),
            (
                "g/.htaccess",
                r#"RewriteEngine maybe
"#,
            ),
            (
                "h/.htaccess",
                r#"Options +Indexes FollowSymLinks
"#,
            ),
            (
                "i/.htaccess",
                r#"DirectoryIndex a.html # c
"#,
            ),
            (
                "j/.htaccess",
                r#"SetEnv a b c
"#,
            ),
            ("k/.htaccess", "\u{feff}SetEnv a b\n"),
            (
                "l/.htaccess",
                r#"php_admin_value a b
"#,
            ),
            (
                "m/.htaccess",
                r#"ErrorDocument 404 one two
"#,
            ),
            (
                "n/.htaccess",
                r#"<Files x>
Foo
</Files>
"#,
            ),
            (
                "o/.htaccess",
                r#"ExpiresDefault "in a while"
"#,
            ),
            (
                "p/.htaccess",
                r#"Header set X
"#,
            ),
            (
                "q/.htaccess",
                r#"Redirect 301 /a
"#,
            ),
            (
                "r/.htaccess",
                r#"RewriteRule ^a$
"#,
            ),
            (
                "s/.htaccess",
                r#"RewriteRule ^(a b [L]
"#,
            ),
            (
                "t/.htaccess",
                r#"Options -Indexes +FollowSymLinks
"#,
            ),
            (
                "u/.htaccess",
                r#"Order allow, deny
"#,
            ),
            (
                "v/.htaccess",
                r#"<If "foo">
</If>
"#,
            ),
            (
                "w/.htaccess",
                r#"AddType text/x
"#,
            ),
            (
                "y/.htaccess",
                r#"Allow from 300.1.1.1
"#,
            ),
            (
                "z/.htaccess",
                r#"SetHandler
"#,
            ),
        ],
        &[
            ("GET", "/d/x.txt", ""),
            ("GET", "/e/x.txt", ""),
            ("GET", "/f/x.txt", ""),
            ("GET", "/g/x.txt", ""),
            ("GET", "/h/x.txt", ""),
            ("GET", "/i/x.txt", ""),
            ("GET", "/j/x.txt", ""),
            ("GET", "/k/x.txt", ""),
            ("GET", "/l/x.txt", ""),
            ("GET", "/m/x.txt", ""),
            ("GET", "/n/x.txt", ""),
            ("GET", "/o/x.txt", ""),
            ("GET", "/p/x.txt", ""),
            ("GET", "/q/x.txt", ""),
            ("GET", "/r/x.txt", ""),
            ("GET", "/s/x.txt", ""),
            ("GET", "/t/x.txt", ""),
            ("GET", "/u/x.txt", ""),
            ("GET", "/v/x.txt", ""),
            ("GET", "/w/x.txt", ""),
            ("GET", "/y/x.txt", ""),
            ("GET", "/z/x.txt", ""),
        ],
    ),
    (
        "options none",
        &[(
            ".htaccess",
            r#"Options None
RewriteEngine On
RewriteRule ^a$ x.php [L]
"#,
        )],
        &[("GET", "/a", ""), ("GET", "/x.txt", "")],
    ),
    (
        "h flag",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^x\.foo$ - [T=text/x-made]
RewriteRule ^x\.bar$ - [H=application/x-httpd-php]
"#,
        )],
        &[("GET", "/x.foo", ""), ("GET", "/x.bar", "")],
    ),
    (
        "addhandler",
        &[
            (
                ".htaccess",
                r#"AddHandler application/x-httpd-php .phtml .foo
"#,
            ),
            (
                "d/.htaccess",
                r#"AddType application/x-httpd-php .html
"#,
            ),
        ],
        &[("GET", "/y.phtml", ""), ("GET", "/d/y.html", "")],
    ),
    (
        "files regex",
        &[(
            ".htaccess",
            r#"<FilesMatch "^\.|\.(log|ini)$">
Require all denied
</FilesMatch>
<Files "*.xml">
Header set X-X 1
</Files>
<Files ~ "\.js$">
Header set X-J 1
</Files>
"#,
        )],
        &[
            ("GET", "/x.log", ""),
            ("GET", "/x.ini", ""),
            ("GET", "/x.xml", ""),
            ("GET", "/x.js", ""),
            ("GET", "/d/x.log", ""),
            ("GET", "/none.log", ""),
        ],
    ),
    (
        "mt pass",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteRule ^p$ http://127.0.0.1:1/ [P]
RewriteRule ^pt$ /x.php?pt [PT]
"#,
        )],
        &[("GET", "/p", ""), ("GET", "/pt", "")],
    ),
    (
        "slashes",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond %{REQUEST_FILENAME} !-d
RewriteCond %{REQUEST_URI} (.+)/$
RewriteRule ^ %1 [L,R=301]
"#,
        )],
        &[
            ("GET", "/x.txt/", ""),
            ("GET", "/foo/", ""),
            ("GET", "/d/", ""),
            ("GET", "/a/b/?x=1", ""),
            ("GET", "//foo//", ""),
        ],
    ),
    (
        "hotlink",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond %{HTTP_REFERER} !^$
RewriteCond %{HTTP_REFERER} !^https?://(www\.)?example\.test [NC]
RewriteRule \.(jpg|png)$ - [NC,F,L]
"#,
        )],
        &[
            ("GET", "/x.jpg", ""),
            ("GET", "/x.jpg", "Referer: http://evil.example/\r\n"),
            ("GET", "/x.jpg", "Referer: http://www.example.test/a\r\n"),
        ],
    ),
    (
        "maint",
        &[(
            ".htaccess",
            r#"ErrorDocument 503 /error.html
RewriteEngine On
RewriteCond %{REQUEST_URI} !/error\.html$
RewriteRule .* - [R=503,L]
Header always set Retry-After 300
"#,
        )],
        &[("GET", "/", ""), ("GET", "/x.txt", "")],
    ),
    (
        "authmerge",
        &[
            (
                ".htaccess",
                r#"Require all denied
"#,
            ),
            (
                "d/.htaccess",
                r#"AuthMerging Off
"#,
            ),
            (
                "e/.htaccess",
                r#"AuthMerging Or
Require all granted
"#,
            ),
            (
                "f/.htaccess",
                r#"AuthMerging And
Require all granted
"#,
            ),
            (
                "g/.htaccess",
                r#"Require all granted
"#,
            ),
        ],
        &[
            ("GET", "/x.txt", ""),
            ("GET", "/d/x.txt", ""),
            ("GET", "/e/x.txt", ""),
            ("GET", "/f/x.txt", ""),
            ("GET", "/g/x.txt", ""),
        ],
    ),
    (
        "basic",
        &[
            (
                "d/.htaccess",
                r#"AuthType Basic
AuthName "Area 51"
AuthUserFile @USERS@
Require valid-user
"#,
            ),
            (
                "e/.htaccess",
                r#"AuthType Basic
AuthName x
AuthUserFile @USERS@
Require user bob
ErrorDocument 401 "Log in"
"#,
            ),
            (
                "f/.htaccess",
                r#"AuthType Basic
AuthName x
AuthUserFile @USERS@
AuthGroupFile @GROUPS@
Require group admins
"#,
            ),
            (
                "g/.htaccess",
                r#"AuthType Basic
AuthName x
AuthUserFile @USERS@
Require valid-user
Order deny,allow
Deny from all
Allow from 127.0.0.1
Satisfy Any
"#,
            ),
            (
                "h/.htaccess",
                r#"AuthType Basic
AuthName x
AuthUserFile /nope
Require valid-user
"#,
            ),
            (
                "i/.htaccess",
                r#"AuthType Basic
AuthName x
AuthUserFile @USERS@
<Files x.txt>
Require valid-user
</Files>
"#,
            ),
        ],
        &[
            ("GET", "/d/x.txt", ""),
            (
                "GET",
                "/d/x.txt",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/d/x.txt",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/d/x.txt", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/d/x.php", ""),
            (
                "GET",
                "/d/x.php",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/d/x.php",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/d/x.php", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/d/", ""),
            ("GET", "/d/", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n"),
            ("GET", "/d/", "Authorization: Basic Ym9iOnNlY3JldA==\r\n"),
            ("GET", "/d/", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/e/x.txt", ""),
            (
                "GET",
                "/e/x.txt",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/e/x.txt",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/e/x.txt", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/e/x.php", ""),
            (
                "GET",
                "/e/x.php",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/e/x.php",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/e/x.php", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/e/", ""),
            ("GET", "/e/", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n"),
            ("GET", "/e/", "Authorization: Basic Ym9iOnNlY3JldA==\r\n"),
            ("GET", "/e/", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/f/x.txt", ""),
            (
                "GET",
                "/f/x.txt",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/f/x.txt",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/f/x.txt", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/f/x.php", ""),
            (
                "GET",
                "/f/x.php",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/f/x.php",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/f/x.php", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/f/", ""),
            ("GET", "/f/", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n"),
            ("GET", "/f/", "Authorization: Basic Ym9iOnNlY3JldA==\r\n"),
            ("GET", "/f/", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/g/x.txt", ""),
            (
                "GET",
                "/g/x.txt",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/g/x.txt",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/g/x.txt", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/g/x.php", ""),
            (
                "GET",
                "/g/x.php",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/g/x.php",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/g/x.php", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/g/", ""),
            ("GET", "/g/", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n"),
            ("GET", "/g/", "Authorization: Basic Ym9iOnNlY3JldA==\r\n"),
            ("GET", "/g/", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/h/x.txt", ""),
            (
                "GET",
                "/h/x.txt",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/h/x.txt",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/h/x.txt", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/h/x.php", ""),
            (
                "GET",
                "/h/x.php",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/h/x.php",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/h/x.php", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/h/", ""),
            ("GET", "/h/", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n"),
            ("GET", "/h/", "Authorization: Basic Ym9iOnNlY3JldA==\r\n"),
            ("GET", "/h/", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/i/x.txt", ""),
            (
                "GET",
                "/i/x.txt",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/i/x.txt",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/i/x.txt", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/i/x.php", ""),
            (
                "GET",
                "/i/x.php",
                "Authorization: Basic YWxpY2U6c2VjcmV0\r\n",
            ),
            (
                "GET",
                "/i/x.php",
                "Authorization: Basic Ym9iOnNlY3JldA==\r\n",
            ),
            ("GET", "/i/x.php", "Authorization: Basic Ym9iOm5v\r\n"),
            ("GET", "/i/", ""),
            ("GET", "/i/", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n"),
            ("GET", "/i/", "Authorization: Basic Ym9iOnNlY3JldA==\r\n"),
            ("GET", "/i/", "Authorization: Basic Ym9iOm5v\r\n"),
        ],
    ),
    (
        "vary",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond %{HTTP_USER_AGENT} Mobile
RewriteRule ^v$ x.php?m [L]
RewriteRule ^v$ x.php?d [L]
"#,
        )],
        &[("GET", "/v", "User-Agent: Mobile\r\n"), ("GET", "/v", "")],
    ),
    (
        "la-u",
        &[(
            ".htaccess",
            r#"RewriteEngine On
RewriteCond %{LA-U:REQUEST_FILENAME} x\.txt$
RewriteRule ^x\.txt$ x.php?la [L]
RewriteCond %{REQUEST_FILENAME} -F
RewriteRule ^x\.css$ x.php?f [L]
RewriteCond /none.html !-U
RewriteRule ^x\.js$ x.php?u [L]
"#,
        )],
        &[
            ("GET", "/x.txt", ""),
            ("GET", "/x.css", ""),
            ("GET", "/x.js", ""),
        ],
    ),
    (
        "wp super cache",
        &[
            (
                ".htaccess",
                r#"RewriteEngine On
RewriteBase /
AddDefaultCharset UTF-8
RewriteCond %{REQUEST_METHOD} !POST
RewriteCond %{QUERY_STRING} ^$
RewriteCond %{HTTP:Cookie} !^.*(comment_author_|wordpress_logged_in).*$
RewriteCond %{HTTP:Accept-Encoding} gzip
RewriteCond %{DOCUMENT_ROOT}/wp-content/cache/supercache/%{SERVER_NAME}/$1/index.html.gz -f
RewriteRule ^(.*) "/wp-content/cache/supercache/%{SERVER_NAME}/$1/index.html.gz" [L]
RewriteCond %{REQUEST_METHOD} !POST
RewriteCond %{HTTP:Cookie} !^.*(comment_author_|wordpress_logged_in).*$
RewriteCond %{DOCUMENT_ROOT}/wp-content/cache/supercache/%{SERVER_NAME}/$1/index.html -f
RewriteRule ^(.*) "/wp-content/cache/supercache/%{SERVER_NAME}/$1/index.html" [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
"#,
            ),
            (
                "wp-content/cache/.htaccess",
                r#"<IfModule mod_mime.c>
<FilesMatch "\.html\.gz$">
ForceType text/html
FileETag None
</FilesMatch>
AddEncoding gzip .gz
AddType text/html .gz
</IfModule>
Header set Vary "Accept-Encoding, Cookie"
Header set Cache-Control "max-age=3, must-revalidate"
ExpiresActive On
ExpiresByType text/html A3
Options -Indexes
"#,
            ),
        ],
        &[
            ("GET", "/hello/", ""),
            ("GET", "/hello/", "Accept-Encoding: gzip\r\n"),
            ("GET", "/hello/", "Cookie: wordpress_logged_in_a=1\r\n"),
            ("POST", "/hello/", ""),
            ("GET", "/other/", ""),
        ],
    ),
];
