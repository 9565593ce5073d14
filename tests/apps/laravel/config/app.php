<?php
return [
    'name' => 'Caravan', 'env' => 'production', 'debug' => false, 'url' => 'http://laravel.test', 'timezone' => 'UTC', 'locale' => 'en',
    'fallback_locale' => 'en', 'key' => str_repeat('k', 32), 'cipher' => 'AES-256-CBC', 'aliases' => [],
    'providers' => [
        Illuminate\Bus\BusServiceProvider::class, Illuminate\Cache\CacheServiceProvider::class,
        Illuminate\Cookie\CookieServiceProvider::class, Illuminate\Database\DatabaseServiceProvider::class,
        Illuminate\Encryption\EncryptionServiceProvider::class, Illuminate\Filesystem\FilesystemServiceProvider::class,
        Illuminate\Foundation\Providers\FoundationServiceProvider::class, Illuminate\Hashing\HashServiceProvider::class,
        Illuminate\Pagination\PaginationServiceProvider::class, Illuminate\Pipeline\PipelineServiceProvider::class,
        Illuminate\Session\SessionServiceProvider::class, Illuminate\Translation\TranslationServiceProvider::class,
        Illuminate\Validation\ValidationServiceProvider::class, Illuminate\View\ViewServiceProvider::class,
        Routes::class,
    ],
];
