//! The requests with which visitors of WooCommerce fill their baskets: they invalidate no page, whether a form, a script or
//! the Store API sends them, unless the script writes something that pages show. `apps/woocommerce.rs` tests the shop
//! itself.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// Stands in for the shop: a page shows a price. A request fills a basket, and changes the price if it has `?price`.
const SHOP: &str = r#"<?php
$db = new SQLite3('SCRATCH/db/shop.sqlite');
$db->busyTimeout(20000);
if (isset($_GET['install'])) {
    $db->exec('CREATE TABLE wp_postmeta (price INTEGER); CREATE TABLE wp_woocommerce_sessions (basket TEXT)');
    exit('installed');
}
if ($_SERVER['REQUEST_METHOD'] === 'GET') exit('price=' . (int) $db->querySingle('SELECT max(price) FROM wp_postmeta'));
$db->exec("INSERT INTO wp_woocommerce_sessions VALUES ('chair')");
if (isset($_GET['price'])) $db->exec("INSERT INTO wp_postmeta VALUES ($_GET[price])");
echo 'done';
"#;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW";
/// The form of a product's page, as a browser sends it.
const BUTTON: &str = "------WebKitFormBoundary7MA4YWxkTrZu0gW\r\n\
    Content-Disposition: form-data; name=\"quantity\"\r\n\r\n1\r\n\
    ------WebKitFormBoundary7MA4YWxkTrZu0gW\r\n\
    Content-Disposition: form-data; name=\"add-to-cart\"\r\n\r\n12\r\n\
    ------WebKitFormBoundary7MA4YWxkTrZu0gW--\r\n";

fn ask(fixture: &Fixture, head: &str, body: &str) -> Response {
    let request = format!("{head}\r\nHost: example.org\r\nConnection: close\r\n\r\n{body}");
    exchange(fixture.address(), request.as_bytes()).unwrap_or_else(|why| panic!("{head}: {why}"))
}

fn read(fixture: &Fixture) -> (String, bool) {
    let page = ask(fixture, "GET /shop/ HTTP/1.1", "");
    (page.text(), page.header("X-Cache") == Some("HIT"))
}

fn post(fixture: &Fixture, (path, kind, body): (&str, &str, &str)) {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {length}");
    let done = ask(fixture, &head, body);
    assert_eq!(done.text(), "done", "{path}");
}

/// Has the page stored, sends the request, and returns whether the page is still stored.
fn page_stays(fixture: &Fixture, request: (&str, &str, &str)) -> bool {
    fixture.wait("the page to be stored", |f| read(f).1);
    post(fixture, request);
    read(fixture).1
}

#[test]
fn visitor_who_fills_a_basket_empties_no_cache() {
    let builder = Fixture::named("baskets").children(2);
    builder.scratch().writable_dir("db");
    let fixture = builder
        .script("index.php", SHOP)
        .script("wp-comments-post.php", SHOP)
        .site("cache = \"on\"\ncache_preset = \"wordpress\"\nfront_controller = \"/index.php\"")
        .start();
    let installed = ask(&fixture, "GET /?install HTTP/1.1", "");
    assert_eq!(installed.text(), "installed");
    let batch =
        r#"{"requests":[{"method":"POST","path":"/wc/store/v1/cart/add-item","body":{"id":12}}]}"#;
    for (request, stays) in [
        (("/product/chair/", MULTIPART, BUTTON), true),
        (("/product/chair/", FORM, "quantity=1&add-to-cart=12"), true),
        (
            (
                "/basket/",
                FORM,
                "cart%5Bx%5D%5Bqty%5D=3&update_cart=Update",
            ),
            true,
        ),
        (("/?wc-ajax=add_to_cart", FORM, "product_id=12"), true),
        (
            ("/wp-json/wc/store/v1/cart/add-item", JSON, "{\"id\":12}"),
            true,
        ),
        (("/wp-json/wc/store/v1/batch", JSON, batch), true),
        // What these write may not show in the database.
        (("/wp-json/wc/store/v1/checkout", JSON, "{}"), false),
        (("/product/chair/", FORM, "comment=hello"), false),
        (
            ("/wp-comments-post.php?wc-ajax=add_to_cart", FORM, "x=1"),
            false,
        ),
        (("/wp-comments-post.php", MULTIPART, BUTTON), false),
    ] {
        assert_eq!(page_stays(&fixture, request), stays, "{request:?}");
    }
    // A write that pages show counts, whichever request it belongs to.
    for (price, path, kind, body) in [
        (1, "/product/chair/?price=1", MULTIPART, BUTTON),
        (2, "/wp-json/wc/store/v1/batch?price=2", JSON, batch),
        (3, "/wp-json/wc/store/v1/cart/add-item?price=3", JSON, "{}"),
    ] {
        assert!(!page_stays(&fixture, (path, kind, body)), "{path}");
        assert_eq!(read(&fixture).0, format!("price={price}"), "{path}");
    }
}
