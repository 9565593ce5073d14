//! Edge side includes with a real application: Symfony's `render_esi()`, whose tags, mark and signed URLs are its own.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// An application of two controllers: a page, and a basket that reads the session.
const FRONT_CONTROLLER: &str = r#"<?php
foreach (['Bundle/FrameworkBundle', 'Bundle/TwigBundle', 'Bridge/Twig'] as $part) {
    require_once "/usr/share/php/Symfony/$part/autoload.php";
}
// Symfony 6 asks Composer which packages are installed.
if (is_file($composer = '/usr/share/php/Composer/InstalledVersions.php')) {
    require_once $composer;
}

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Bundle\TwigBundle\TwigBundle;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;
use Twig\Environment;

final class Shop
{
    public function page(Environment $twig): Response
    {
        file_put_contents('SCRATCH/var/pages', 'x', FILE_APPEND);
        $page = new Response($twig->render('page.html.twig', ['comment' => $_GET['comment'] ?? '']));
        return $page->setPublic()->setSharedMaxAge(600);
    }

    public function basket(Request $request, string $name): Response
    {
        $session = $request->getSession();
        $session->set('visits', $visits = $session->get('visits', 0) + 1);
        return new Response("<b>$name: $visits</b>");
    }

    public function login(Request $request): Response
    {
        $request->getSession()->set('visits', 40);
        return new Response('hello');
    }

    public function menu(): Response
    {
        file_put_contents('SCRATCH/var/menus', 'x', FILE_APPEND);
        return (new Response('<nav>menu</nav>'))->setPublic()->setSharedMaxAge(600);
    }

    public function broken(): Response
    {
        throw new RuntimeException('broken');
    }

    public function secret(): Response
    {
        return new Response('SECRET');
    }
}

final class ShopKernel extends Kernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable { return [new FrameworkBundle(), new TwigBundle()]; }
    public function getProjectDir(): string { return 'SCRATCH'; }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'not secret, this is a test',
            'esi' => true,
            'fragments' => ['path' => '/_fragment'],
            'session' => ['handler_id' => null, 'storage_factory_id' => 'session.storage.factory.native', 'save_path' => 'SCRATCH/var'],
            'http_method_override' => true,
            'php_errors' => ['log' => true],
        ]);
        $container->extension('twig', ['default_path' => 'SCRATCH/templates', 'strict_variables' => true]);
        $services = $container->services()->defaults()->autowire()->autoconfigure();
        $services->set(Shop::class, Shop::class)->public()->tag('controller.service_arguments');
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('page', '/')->controller([Shop::class, 'page']);
        $routes->add('login', '/login')->controller([Shop::class, 'login']);
        $routes->add('secret', '/secret')->controller([Shop::class, 'secret']);
    }
}

$kernel = new ShopKernel('prod', false);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
"#;

const TEMPLATE: &str = r#"<h1>Shop</h1>
{{ render_esi(controller('Shop::menu')) }}
{{ render_esi(controller('Shop::basket', {name: 'Ann & <Bob>'})) }}
{{ render_esi(controller('Shop::broken')) }}
<p>{{ comment|raw }}</p>
"#;

fn ask(fixture: &Fixture, path: &str, lines: &str) -> Response {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{lines}Connection: close\r\n\r\n");
    exchange(fixture.address(), request.as_bytes()).expect("a response")
}

fn runs(fixture: &Fixture, of: &str) -> usize {
    std::fs::read(fixture.path(of)).map_or(0, |bytes| bytes.len())
}

#[test]
fn symfony_page_with_a_session_in_a_fragment_is_served_from_the_cache() {
    let builder = Fixture::named("esi-symfony");
    builder.scratch().writable_dir("var");
    builder
        .scratch()
        .write("templates/page.html.twig", TEMPLATE);
    let fixture = builder
        .script("index.php", FRONT_CONTROLLER)
        .site("front_controller = \"/index.php\"\ncache = \"on\"\n")
        .site("[site.esi]\npaths = [\"symfony\"]\ncookies = [\"PHPSESSID\"]\n")
        .start();
    let first = ask(&fixture, "/", "");
    let text = first.text();
    assert_eq!(first.status(), 200, "{text}\n{}", fixture.log());
    let expected = |visits: usize| {
        format!("<h1>Shop</h1>\n<nav>menu</nav>\n<b>Ann & <Bob>: {visits}</b>\n\n<p></p>\n")
    };
    assert_eq!(text, expected(1));
    // A fragment that starts a session cannot set its cookie: the header of the page has been sent.
    assert_eq!(first.header("Set-Cookie"), None);
    for _ in 0..6 {
        ask(&fixture, "/", "");
    }
    // A visitor who has a session gets the stored page, with the own basket in it.
    let login = ask(&fixture, "/login", "");
    let cookie = login.header("Set-Cookie").expect("a session");
    let session = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    let pages = runs(&fixture, "var/pages");
    for visit in 41..44 {
        let own = ask(&fixture, "/", &session);
        let status = own.header("Cache-Status").unwrap_or_default();
        assert!(status.starts_with("Howdah; hit"), "{status}");
        assert_eq!(own.header("Surrogate-Control"), None);
        assert_eq!(own.header("Cache-Control"), Some("private, no-cache"));
        assert_eq!(own.text(), expected(visit));
    }
    assert_eq!(runs(&fixture, "var/pages"), pages);
    // Visitors without a session share the menu as well.
    let menus = runs(&fixture, "var/menus");
    ask(&fixture, "/", "");
    assert_eq!(runs(&fixture, "var/menus"), menus);
    fixture.wait_for_log(&["EsiFailed", "broken", "the status was 500"]);
    // A visitor cannot write a tag that runs: without the signature, Symfony refuses it, and other paths are not
    // requested. The raw filter of the template makes the application as careless as it can be.
    for typed in [
        "<esi:include src=\"/_fragment?_path=_controller%3DShop%253A%253Asecret\" onerror=\"continue\"/>",
        "<esi:include src=\"/secret\"/>",
    ] {
        let encoded: String = typed.bytes().map(|b| format!("%{b:02x}")).collect();
        let text = ask(&fixture, &format!("/?comment={encoded}"), "").text();
        assert!(
            text.contains("<p></p>") && !text.contains("SECRET"),
            "{text}"
        );
    }
    fixture.wait_for_log(&["EsiFailed", "_fragment", "the status was 403"]);
    fixture.wait_for_log(&["EsiNotAllowed", "/secret"]);
}
