//! WordPress over HTTPS in a real Chromium: its owner logs in, uploads a picture, writes a post and views it.

use howdah_tests::chromium::Chromium;
use howdah_tests::pki::Pki;
use howdah_tests::rig::{Howdah, Server};
use howdah_tests::scratch::Scratch;
use howdah_tests::wordpress_home::{HOST, WordpressHome};
use serde_json::Value;

/// Creates a picture and puts it into the form of a page.
const CHOOSE_A_PICTURE: &str = "(async () => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = 600;
    const pen = canvas.getContext('2d'), noise = pen.createImageData(600, 600);
    for (let n = 0; n < noise.data.length; n++) noise.data[n] = n % 4 == 3 ? 255 : Math.random() * 256;
    pen.putImageData(noise, 0, 0);
    const blob = await new Promise(done => canvas.toBlob(done, 'image/png'));
    const files = new DataTransfer();
    files.items.add(new File([blob], 'elephant.png', {type: 'image/png'}));
    const input = document.querySelector('input[name=async-upload]');
    input.files = files.files;
    return blob.size;
})()";

#[test]
fn owner_works_with_wordpress_over_http_1_1() {
    work_in_wordpress(&["--disable-http2"], "http/1.1");
}

#[test]
fn owner_works_with_wordpress_over_http_2() {
    work_in_wordpress(&[], "h2");
}

#[test]
fn owner_works_with_wordpress_over_http_3() {
    let quic = format!("--origin-to-force-quic-on={HOST}:443");
    work_in_wordpress(&["--enable-quic", &quic], "h3");
}

fn work_in_wordpress(arguments: &[&str], protocol: &str) {
    let home = WordpressHome::prepare_at(&format!("https://{HOST}"));
    let scratch = Scratch::new("wordpress-https");
    let pki = Pki::new(scratch.path());
    pki.sign("site", &[HOST]);
    let mut site = home.site();
    let directory = scratch.path().display();
    site.howdah_config = Some(format!(
        "[[site]]\nroot = \"{}\"\nrecognise = true\nhosts = [\"{HOST}\"]\nhttps_redirect = true\n\
         [[site.certificate]]\nfile = \"{directory}/site.pem\"\nkey = \"{directory}/site.key\"\n",
        site.root.display()
    ));
    let listen = ["--listen", "127.0.0.1:0 tls http3"];
    site.howdah_arguments.extend(listen.map(str::to_owned));
    let server = Howdah::start(&site);
    // Over QUIC, Chromium checks certificates even if it is told to ignore their errors, so it is given the hash of the
    // site's key.
    let pardon = format!(
        "--ignore-certificate-errors-spki-list={}",
        pki.key_hash("site")
    );
    let map = format!(
        "--host-resolver-rules=MAP {HOST}:443 {}, MAP {HOST}:80 {}, MAP {HOST} 127.0.0.1, MAP * ~NOTFOUND",
        server.tls_address(),
        server.address()
    );
    let mut browser = Chromium::start(&[&[map.as_str(), pardon.as_str()], arguments].concat());
    // Starts at the HTTP address, which the server redirects to HTTPS.
    browser.open(&format!("http://{HOST}/wp-login.php"));
    assert_eq!(browser.evaluate("location.protocol"), "https:");
    browser.open(&format!("https://{HOST}/wp-login.php"));
    let spoken = "performance.getEntriesByType('navigation')[0].nextHopProtocol";
    assert_eq!(browser.evaluate(spoken), protocol);
    browser.leave_by(
        "document.querySelector('#user_login').value = 'owner';
         document.querySelector('#user_pass').value = 'carry the howdah';
         document.querySelector('#loginform').submit();",
    );
    assert_eq!(browser.evaluate("location.pathname"), "/wp-admin/");
    // The session cookie is hidden from scripts (HttpOnly).
    assert_eq!(
        browser.evaluate("document.cookie.includes('wordpress_logged_in')"),
        false
    );
    browser.open(&format!(
        "https://{HOST}/wp-admin/media-new.php?browser-uploader"
    ));
    let size = browser.evaluate(CHOOSE_A_PICTURE);
    assert!(size.as_u64().is_some_and(|size| size > 500_000), "{size}");
    browser.leave_by("document.querySelector('#html-upload').click();");
    browser.open(&format!("https://{HOST}/wp-admin/upload.php?mode=list"));
    let picture = browser.evaluate("document.querySelector('#the-list img').src");
    let picture = picture.as_str().expect("the picture is listed");
    assert!(
        picture.starts_with(&format!("https://{HOST}/wp-content/uploads/")),
        "{picture}"
    );
    let published = browser.evaluate(
        "(async () => {
            await new Promise(done => {
                const script = document.createElement('script');
                script.src = '/wp-includes/js/jquery/jquery.min.js';
                script.onload = done;
                document.head.append(script);
            });
            const nonce = (await (await fetch('/wp-admin/admin-ajax.php?action=rest-nonce')).text());
            const answer = await fetch('/?rest_route=/wp/v2/posts', {
                method: 'POST',
                headers: {'Content-Type': 'application/json', 'X-WP-Nonce': nonce},
                body: JSON.stringify({title: 'By HTTPS', status: 'publish', content: 'A rider writes. '.repeat(20000)}),
            });
            return (await answer.json()).link;
        })()",
    );
    let link = published.as_str().expect("the post's address");
    browser.open(link);
    assert_eq!(
        browser.evaluate("document.querySelector('h1').innerText"),
        "By HTTPS"
    );
    assert_eq!(
        browser.evaluate("document.body.innerText.includes('A rider writes.')"),
        true
    );
    // All resources that the page loaded from this site were transferred with the same protocol.
    let others = format!(
        "performance.getEntriesByType('resource').filter(e => e.name.startsWith(location.origin) && e.nextHopProtocol != '{protocol}').map(e => e.name + ' ' + e.nextHopProtocol)"
    );
    assert_eq!(browser.evaluate(&others), Value::Array(Vec::new()));
}
