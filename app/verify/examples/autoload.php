<?php
// Loads the project's own classes as composer.json says, if Composer has not been run.
(function (array $named): void {
    $root = getcwd();
    spl_autoload_register(function (string $class) use ($named, $root): void {
        foreach (['psr-4' => true, 'psr-0' => false] as $kind => $strip) {
            foreach ($named[$kind] ?? [] as $prefix => $places) {
                if ($prefix !== '' && strpos($class, $prefix) !== 0) {
                    continue;
                }
                $rest = $strip ? substr($class, strlen($prefix)) : strtr($class, '_', '\\');
                foreach ((array) $places as $place) {
                    $file = $root . '/' . rtrim($place, '/') . '/' . strtr($rest, '\\', '/') . '.php';
                    if (is_file($file)) {
                        require $file;
                        return;
                    }
                }
            }
        }
    });
    foreach ($named['files'] ?? [] as $file) {
        require_once $root . '/' . $file;
    }
})(json_decode(NAMED, true));
