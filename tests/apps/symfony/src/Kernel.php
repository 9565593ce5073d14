<?php
declare(strict_types=1);

namespace Notes;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Bundle\SecurityBundle\SecurityBundle;
use Symfony\Bundle\TwigBundle\TwigBundle;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;
use Symfony\Component\Security\Core\User\InMemoryUser;

/** Configures the framework in PHP: bundles, security, services and routes. */
final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle(), new TwigBundle(), new SecurityBundle()];
    }

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'not secret, this is a test',
            'session' => ['handler_id' => null, 'storage_factory_id' => 'session.storage.factory.native', 'cookie_secure' => 'auto', 'cookie_samesite' => 'lax'],
            'form' => ['csrf_protection' => true],
            'csrf_protection' => true,
            'validation' => ['enable_annotations' => false],
            'http_method_override' => true,
            'php_errors' => ['log' => true],
        ]);
        $container->extension('twig', ['default_path' => '%kernel.project_dir%/templates', 'strict_variables' => true]);
        $container->extension('security', [
            'enable_authenticator_manager' => true,
            'password_hashers' => [InMemoryUser::class => ['algorithm' => 'bcrypt', 'cost' => 4]],
            'providers' => ['authors' => ['memory' => ['users' => [
                'author' => ['password' => password_hash('papyrus', PASSWORD_BCRYPT, ['cost' => 4]), 'roles' => ['ROLE_AUTHOR']],
            ]]]],
            'firewalls' => [
                'api' => ['pattern' => '^/api/', 'stateless' => true, 'http_basic' => ['realm' => 'Notes']],
                'main' => [
                    'form_login' => ['login_path' => 'login', 'check_path' => 'login', 'enable_csrf' => true, 'default_target_path' => 'list'],
                    'logout' => ['path' => 'logout', 'target' => 'list'],
                ],
            ],
            'access_control' => [
                ['path' => '^/api/', 'methods' => ['POST', 'PUT', 'DELETE'], 'roles' => 'ROLE_AUTHOR'],
                ['path' => '^/note/(new|\d+/(edit|delete))', 'roles' => 'ROLE_AUTHOR'],
            ],
        ]);
        $services = $container->services()->defaults()->autowire()->autoconfigure()->bind('$directory', '%kernel.project_dir%/var');
        $services->set(Store::class);
        $services->set(Pages::class)->public()->tag('controller.service_arguments');
        $services->set(Api::class)->public()->tag('controller.service_arguments');
        $services->set(AfterResponse::class);
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $page = static fn (string $name, string $path, string $method) => $routes->add($name, $path)->controller([Pages::class, $method]);
        $page('list', '/', 'list')->methods(['GET']);
        $page('login', '/login', 'login')->methods(['GET', 'POST']);
        $routes->add('logout', '/logout')->methods(['GET', 'POST']);
        $page('new', '/note/new', 'new')->methods(['GET', 'POST']);
        $page('note', '/note/{id<\d+>}', 'note')->methods(['GET']);
        $page('edit', '/note/{id<\d+>}/edit', 'edit')->methods(['GET', 'POST']);
        $page('delete', '/note/{id<\d+>}/delete', 'delete')->methods(['DELETE']);
        $page('picture', '/picture/{size<full|small>}/{name<[a-z0-9]+\.jpg>}', 'picture')->methods(['GET']);
        $page('stream', '/stream', 'inParts')->methods(['GET']);
        $page('broken', '/broken', 'broken');
        $page('seen', '/seen', 'seen');
        $routes->add('api.list', '/api/notes')->controller([Api::class, 'list'])->methods(['GET']);
        $routes->add('api.add', '/api/notes')->controller([Api::class, 'add'])->methods(['POST']);
        $routes->add('api.change', '/api/notes/{id<\d+>}')->controller([Api::class, 'change'])->methods(['PUT']);
        $routes->add('api.remove', '/api/notes/{id<\d+>}')->controller([Api::class, 'remove'])->methods(['DELETE']);
    }
}
