//! WooCommerce with the page cache: visitors fill their baskets in every way that the shop offers, buy, and read the
//! catalogue, while the owner changes a price. WooCommerce is not part of this repository: `HOWDAH_WOOCOMMERCE` names the
//! directory of a WordPress with the plugin WooCommerce and its theme Storefront, and `HOWDAH_LSCACHE_WP` a checkout of the
//! LiteSpeed Cache plugin. Without them, these tests are left out, and say so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};
use howdah_tests::readers::{CachedApplication, Reader};
use howdah_tests::scratch::copy_tree;
use howdah_tests::wordpress_home::{HOST, WordpressHome};

use crate::wordpress_cache::log_in;

const VARIABLE: &str = "HOWDAH_WOOCOMMERCE";
const SHOPPERS: usize = 10;
const STOCK: u64 = 100_000;

/// Creates the pages of the shop and four products. The name of the first one is the edition.
const INSTALL: &str = "
require_once ABSPATH . 'wp-admin/includes/plugin.php';
$result = activate_plugin('woocommerce/woocommerce.php');
if (is_wp_error($result)) exit($result->get_error_message());
switch_theme('storefront');
WC_Install::install();
WC_Install::create_pages();
";
const FILL: &str = "
foreach (['coming_soon' => 'no', 'enable_guest_checkout' => 'yes', 'ship_to_countries' => 'disabled',
        'cod_settings' => ['enabled' => 'yes', 'enable_for_virtual' => 'yes']] as $name => $value)
    update_option(\"woocommerce_$name\", $value);
foreach (['Edition 1', 'Chair', 'Table', 'Lamp'] as $at => $name) {
    $product = new WC_Product_Simple();
    $product->set_props(['name' => $name, 'slug' => \"p$at\", 'regular_price' => '10', 'virtual' => true,
        'manage_stock' => true, 'stock_quantity' => 100000, 'status' => 'publish']);
    echo $product->save(), ' ';
}
update_option('permalink_structure', '/%postname%/');
";

const PLUGIN: &str = "
require_once ABSPATH . 'wp-admin/includes/plugin.php';
$result = activate_plugin('litespeed-cache/litespeed-cache.php');
if (is_wp_error($result)) exit($result->get_error_message());
\\LiteSpeed\\Conf::cls()->update_confs(['esi' => true]);
";

/// An installed shop, and the server in front of it.
struct Shop {
    _home: WordpressHome,
    server: Fixture,
    /// The numbers of the products.
    products: Vec<String>,
}

impl Shop {
    /// Starts a shop with the recipe's settings. Returns `None` if there is no WooCommerce.
    fn start(name: &str) -> Option<Shop> {
        Shop::start_with(name, None)
    }

    /// Starts a shop, with the LiteSpeed Cache plugin if its directory is given.
    fn start_with(name: &str, plugin: Option<&Path>) -> Option<Shop> {
        let Some(files) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
            eprintln!("left out: {VARIABLE} names no WordPress with WooCommerce");
            return None;
        };
        let home = WordpressHome::prepare_from(&files);
        home.run(INSTALL);
        let products = home.run(FILL);
        home.run("flush_rewrite_rules();");
        let site = home.site().ini("memory_limit", "256M").children(4);
        let mut options = "recognise = true\ncache = \"on\"\n".to_owned();
        if let Some(plugin) = plugin {
            copy_tree(
                plugin,
                &site.root.join("wp-content/plugins/litespeed-cache"),
            );
            home.run(PLUGIN);
            options += "[site.esi]\npaths = [\"litespeed\"]\n[site.private]\n";
        }
        let server = Fixture::of(name, site).site(&options).start();
        let products = products.split_whitespace().map(str::to_owned).collect();
        Some(Shop {
            _home: home,
            server,
            products,
        })
    }

    fn application<'a>(&self, readers: &'a [Reader<'a>]) -> CachedApplication<'a> {
        CachedApplication {
            address: self.server.address(),
            host: HOST,
            readers,
            mark: "Edition ",
            secrets: &["1 item", "2 items", "3 items", "wpadminbar"],
        }
    }

    /// Waits until a page of the catalogue is stored.
    fn keep(&self, path: &str) -> String {
        let mut guest = Shopper::new(self);
        let mut text = String::new();
        self.server.wait("the page to be stored", |_| {
            let page = guest.ask("GET", path, "", "");
            text = page.text();
            page.header("X-Cache") == Some("HIT")
        });
        text
    }
}

/// A visitor with a browser's cookies, and what is in the visitor's basket.
struct Shopper<'a> {
    shop: &'a Shop,
    cookies: BTreeMap<String, String>,
    basket: u64,
    steps: usize,
}

impl<'a> Shopper<'a> {
    fn new(shop: &'a Shop) -> Shopper<'a> {
        Shopper {
            shop,
            cookies: BTreeMap::new(),
            basket: 0,
            steps: 0,
        }
    }

    /// Sends a request with the visitor's cookies, and stores those of the response.
    fn ask(&mut self, method: &str, path: &str, lines: &str, body: &str) -> Response {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        let cookies = match cookies.as_slice() {
            [] => String::new(),
            all => format!("Cookie: {}\r\n", all.join("; ")),
        };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{cookies}{lines}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        let request = match method {
            "GET" => request.replace("Content-Length: 0\r\n", ""),
            _ => request,
        };
        let response = exchange(self.shop.server.address(), request.as_bytes());
        let response = response.unwrap_or_else(|why| panic!("{method} {path}: {why}"));
        for line in response.head.headers.all("Set-Cookie") {
            assert_ne!(response.header("X-Cache"), Some("HIT"), "{path}: {line}");
            let pair = line.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a cookie");
            match line.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        response
    }

    /// Reads a page, whose header shows the basket.
    fn view(&mut self, path: &str) -> String {
        let page = self.ask("GET", path, "", "");
        let text = page.text();
        assert_eq!(page.status(), 200, "{path}: {text}");
        assert_eq!(items(&text), self.basket, "{path}: {:?}", page.head);
        text
    }

    /// Sends a request to the Store API, as the shop's scripts do, with the nonce that the API names.
    fn store(&mut self, path: &str, body: &str) -> Response {
        let basket = self.ask("GET", "/wp-json/wc/store/v1/cart", "", "");
        let nonce = basket.header("Nonce").expect("a nonce");
        let lines = format!("Nonce: {nonce}\r\nContent-Type: application/json\r\n");
        self.ask("POST", &format!("/wp-json/wc/store/v1{path}"), &lines, body)
    }

    /// Adds a product to the basket, each time in the next one of the ways that the shop offers.
    fn add(&mut self) {
        let id = self.shop.products[1].clone();
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        let item = format!("{{\"id\":{id},\"quantity\":1}}");
        let response = match self.steps % 5 {
            0 => {
                let lines =
                    "Content-Type: multipart/form-data; boundary=----geckoformboundary1\r\n";
                let body = format!(
                    "------geckoformboundary1\r\nContent-Disposition: form-data; name=\"quantity\"\r\n\r\n1\r\n\
                     ------geckoformboundary1\r\nContent-Disposition: form-data; name=\"add-to-cart\"\r\n\r\n{id}\r\n\
                     ------geckoformboundary1--\r\n"
                );
                self.ask("POST", "/product/p1/", lines, &body)
            }
            1 => self.ask(
                "POST",
                "/?wc-ajax=add_to_cart",
                form,
                &format!("product_id={id}&quantity=1"),
            ),
            2 => self.store("/cart/add-item", &item),
            3 => {
                let path = "/wc/store/v1/cart/add-item";
                let one = format!("{{\"method\":\"POST\",\"path\":\"{path}\",\"body\":{item}}}");
                // A request of a batch has its own headers.
                let nonce = self.ask("GET", "/wp-json/wc/store/v1/cart", "", "");
                let nonce = nonce.header("Nonce").expect("a nonce").to_owned();
                let one = one.replace(
                    "{\"method\"",
                    &format!("{{\"headers\":{{\"Nonce\":\"{nonce}\"}},\"method\""),
                );
                self.store("/batch", &format!("{{\"requests\":[{one}]}}"))
            }
            _ => self.ask("GET", &format!("/shop/?add-to-cart={id}"), "", ""),
        };
        assert!(
            matches!(response.status(), 200 | 201 | 207),
            "{}",
            response.text()
        );
        self.steps += 1;
        self.basket += 1;
    }

    /// Buys what is in the basket, and pays on delivery.
    fn buy(&mut self) {
        let address = "{\"first_name\":\"A\",\"last_name\":\"Rider\",\"company\":\"\",\"address_1\":\"1 Way\",\
            \"address_2\":\"\",\"city\":\"Berlin\",\"state\":\"DE-BE\",\"postcode\":\"10115\",\"country\":\"DE\",\
            \"email\":\"rider@example.org\",\"phone\":\"1\"}";
        let order = format!(
            "{{\"billing_address\":{address},\"payment_method\":\"cod\",\"payment_data\":[]}}"
        );
        let response = self.store("/checkout", &order);
        assert_eq!(response.status(), 200, "{}", response.text());
        self.basket = 0;
    }

    /// Waits until the page is stored for this visitor alone, and checks the basket each time.
    fn keep_own(&mut self, path: &str) {
        let shop = self.shop;
        shop.server
            .wait("the visitor's own page to be stored", |_| {
                let page = self.ask("GET", path, "", "");
                assert_eq!(items(&page.text()), self.basket, "{path}: {:?}", page.head);
                let status = page.header("Cache-Status").unwrap_or_default();
                let is_hit = page.header("X-Cache") == Some("HIT");
                assert!(!is_hit || status.ends_with("detail=private"), "{status}");
                is_hit
            });
    }

    fn session(&self) -> Option<&String> {
        let mut cookies = self.cookies.iter();
        cookies
            .find_map(|(name, value)| name.starts_with("wp_woocommerce_session_").then_some(value))
    }
}

/// Returns how many items are in the basket that a page shows.
fn items(page: &str) -> u64 {
    let count = page.split("<span class=\"count\">").nth(1);
    let digits = count.and_then(|rest| rest.split(' ').next());
    let digits = digits.unwrap_or_else(|| panic!("no basket: {page}"));
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no number of items: {digits}"))
}

/// Returns the stock that a product's page shows.
fn stock(page: &str) -> u64 {
    let before = page.split(" in stock").next().expect("a text");
    let digits = before.rsplit('>').next().unwrap_or_default();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no stock: {page}"))
}

#[test]
fn filling_a_basket_empties_no_cache_and_an_order_does() {
    let Some(shop) = Shop::start("woocommerce-basket") else {
        return;
    };
    let mut shopper = Shopper::new(&shop);
    for way in 0..10 {
        shop.keep("/product/p2/");
        shopper.add();
        // A form is sent to the URL of its product's page, and RFC 9111 requires that this one page is invalidated.
        let mut guest = Shopper::new(&shop);
        let page = guest.ask("GET", "/product/p2/", "", "");
        assert_eq!(items(&page.text()), 0);
        // The first requests of a new shop write settings.
        if way >= 5 {
            let of_way = page.header("Cache-Status").unwrap_or_default();
            assert_eq!(page.header("X-Cache"), Some("HIT"), "way {way}: {of_way}");
        }
        shopper.view("/product/p1/");
    }
    assert_eq!(stock(&shop.keep("/product/p1/")), STOCK);
    shopper.buy();
    shopper.view("/");
    assert_eq!(stock(&Shopper::new(&shop).view("/product/p1/")), STOCK - 10);
}

#[test]
fn plugin_stores_the_pages_of_a_visitor_with_a_basket_for_this_visitor_alone() {
    let Some(plugin) = std::env::var_os("HOWDAH_LSCACHE_WP").map(PathBuf::from) else {
        eprintln!("left out: HOWDAH_LSCACHE_WP names no checkout of the LiteSpeed Cache plugin");
        return;
    };
    let Some(shop) = Shop::start_with("woocommerce-own", Some(&plugin)) else {
        return;
    };
    let mut shoppers = [Shopper::new(&shop), Shopper::new(&shop)];
    shoppers[0].add();
    for way in 0..5 {
        for shopper in &mut shoppers {
            shopper.steps = way;
            shopper.add();
        }
        for shopper in &mut shoppers {
            shopper.keep_own("/shop/");
            shopper.keep_own("/product/p2/");
        }
        assert_eq!(items(&shop.keep("/shop/")), 0, "guests");
    }
    shoppers[0].buy();
    for shopper in &mut shoppers {
        shopper.view("/shop/");
        shopper.view("/product/p2/");
    }
}

/// Changes the name and the price of the first product, as the dashboard does.
fn change_product(shop: &Shop, owner: &str, edition: u64) {
    let drive = shop.application(&[]);
    let token = drive
        .ask(
            "GET",
            "/wp-admin/admin-ajax.php?action=rest-nonce",
            owner,
            "",
        )
        .text();
    let path = format!("/wp-json/wc/v3/products/{}", shop.products[0]);
    let lines = format!("{owner}X-WP-Nonce: {token}\r\n");
    let form = format!("name=Edition+{edition}&regular_price={edition}");
    let answer = drive.ask("POST", &path, &lines, &form);
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[test]
fn every_visitor_sees_the_own_basket_and_the_newest_price_and_stock() {
    let Some(shop) = Shop::start("woocommerce-judge") else {
        return;
    };
    let readers =
        ["/shop/", "/product/p0/", "/shop/?orderby=price"].map(|path| Reader { path, lines: "" });
    let drive = shop.application(&readers);
    let owner = log_in(&drive, "", "owner", "carry+the+howdah");
    let (sold, answers) = (AtomicU64::new(0), AtomicU64::new(0));
    let sessions = Mutex::new(BTreeSet::new());
    let mut users: Vec<Box<dyn FnMut() + Send + '_>> = Vec::new();
    for number in 0..SHOPPERS {
        let (shop, sold, answers, sessions) = (&shop, &sold, &answers, &sessions);
        let mut shopper = Shopper::new(shop);
        shopper.steps = number;
        let mut known = None;
        users.push(Box::new(move || {
            shopper.add();
            if known.is_none() {
                known = shopper.session().cloned();
                let session = known.clone().expect("a session");
                assert!(
                    sessions.lock().expect("no panic").insert(session),
                    "a session of two visitors"
                );
            }
            for path in ["/shop/", "/product/p1/", "/cart/"] {
                let before = sold.load(Ordering::SeqCst);
                let page = shopper.view(path);
                if path == "/product/p1/" {
                    assert!(stock(&page) <= STOCK - before, "{before} were sold: {page}");
                }
                answers.fetch_add(1, Ordering::SeqCst);
            }
            if shopper.basket >= 3 {
                let bought = shopper.basket;
                shopper.buy();
                sold.fetch_add(bought, Ordering::SeqCst);
                let before = sold.load(Ordering::SeqCst);
                let page = Shopper::new(shop).view("/product/p1/");
                assert!(stock(&page) <= STOCK - before, "{before} were sold: {page}");
            }
        }));
    }
    drive.run(users, |edition| {
        change_product(&shop, &owner, edition);
        let page = Shopper::new(&shop).view("/product/p0/");
        assert!(
            page.contains(&format!("{edition}.00</bdi>")),
            "{edition}: {page}"
        );
    });
    println!("{} pages of visitors with a basket", answers.into_inner());
}
