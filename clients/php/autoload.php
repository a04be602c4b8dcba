<?php

declare(strict_types=1);

// For programs without Composer: require this file.

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Gloom\\')) {
        $file = __DIR__ . '/src/' . strtr(substr($class, 6), '\\', '/') . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
