<?php

// Drives the PHP client in the tests of all clients, as package agent describes.

declare(strict_types=1);

use Gloom\Exception as E;
use Gloom\Fatal;
use Gloom\Job;
use Gloom\Pending;
use Gloom\RawJson;
use Gloom\Release;
use Gloom\RetryAfter;
use Gloom\Settings;
use Gloom\Submitter;
use Gloom\Worker;

require __DIR__ . '/../../php/autoload.php';

[, $role, $text] = $argv;
$told = json_decode($text, true, flags: JSON_THROW_ON_ERROR);
$settings = new Settings(
    $told['addrs'],
    token: $told['token'] ?? null,
    heartbeat: ($told['heartbeat'] ?? 0) / 1000,
    tls: isset($told['ca']) ? ['cafile' => $told['ca']] : null,
    backoff: [$told['backoff'][0] / 1000, $told['backoff'][1] / 1000],
    raw: true,
);

function tell(mixed ...$event): void
{
    fwrite(STDOUT, json_encode($event, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
}

/** @return array<string, mixed> */
function failure(Throwable $e): array
{
    $kind = match (true) {
        $e instanceof E\RefusedException => 'refused',
        $e instanceof E\JobException => 'job',
        $e instanceof E\LostException => 'lost',
        $e instanceof E\NotConnectedException => 'not connected',
        $e instanceof E\ClosedException => 'closed',
        default => (string) $e,
    };

    return [
        'kind' => $kind, 'code' => $e->error ?? '', 'reason' => $e->reason ?? '', 'final' => $e->final ?? false,
        'lost' => $e->lost ?? false, 'acked' => $e->acked ?? false, 'sent' => $e->sent ?? false,
    ];
}

/** @param array<string, mixed> $told */
function submitter(Settings $settings, array $told): void
{
    $jobs = new Submitter($settings, window: $told['window'] ?? 1024);
    /** @var array<string, Pending> $pending */
    $pending = [];
    $acked = [];
    $seconds = static fn (array $c, string $key): ?float => isset($c[$key]) ? $c[$key] / 1000 : null;
    $progress = static fn (array $c): ?Closure => empty($c['progress']) ? null
        : static fn (RawJson $body) => tell(tag: $c['tag'], progress: (string) $body);
    $bench = static function (array $c) use ($jobs): void {
        $began = microtime(true);
        if ($c['window'] === 1) {
            for ($i = 0; $i < $c['count']; $i++) {
                $jobs->do($c['type'], $i);
            }
        } else {
            foreach ($jobs->map($c['type'], range(1, $c['count'])) as $job) {
                $job->result();
            }
        }
        tell(tag: $c['tag'], seconds: microtime(true) - $began);
    };
    $does = [
        'submit' => static function (array $c) use ($jobs, &$pending, $seconds, $progress): void {
            $pending[$c['tag']] = $jobs->submit(
                $c['type'] ?? null,
                RawJson::of($c['body']),
                id: $c['id'] ?? null,
                priority: $c['priority'] ?? 0,
                delay: $seconds($c, 'delay'),
                timeout: $seconds($c, 'timeout'),
                retries: $c['retries'] ?? null,
                backoff: $seconds($c, 'backoff'),
                expires: $seconds($c, 'expires'),
                detach: $c['detach'] ?? false,
                groups: $c['groups'] ?? null,
                age: $seconds($c, 'age'),
                keep: $seconds($c, 'keep'),
                atLeastOnce: $c['at_least_once'] ?? false,
                headers: $c['headers'] ?? null,
                onProgress: $progress($c),
            );
        },
        'attach' => static function (array $c) use ($jobs, &$pending, $progress): void {
            $pending[$c['tag']] = $jobs->attach($c['id'], $progress($c));
        },
        'cancel' => static fn (array $c) => $jobs->cancel($c['id']),
        'change' => static fn (array $c) => $jobs->change($c['id'], $c['priority'] ?? null, $c['groups'] ?? null, $seconds($c, 'delay')),
        'ping' => static fn () => $jobs->ping(),
        'drain' => static fn () => $jobs->drain(),
        'leave' => static fn () => $jobs->leave(),
        'close' => static fn () => $jobs->close(),
        'bench' => $bench,
    ];
    $report = static function () use (&$pending, &$acked): void {
        foreach ($pending as $tag => $job) {
            if ($job->acked && !isset($acked[$tag])) {
                $acked[$tag] = true;
                tell(tag: (string) $tag, acked: true);
            }
            if ($job->done()) {
                unset($pending[$tag]);
                try {
                    tell(tag: (string) $tag, result: (string) $job->result());
                } catch (Throwable $e) {
                    tell(tag: (string) $tag, error: failure($e));
                }
            }
        }
    };
    stream_set_blocking(STDIN, false);
    for ($line = ''; !feof(STDIN);) {
        $line .= (string) fgets(STDIN);
        if (!str_ends_with($line, "\n")) {
            $jobs->poll(0.001);
            $report();
            continue;
        }
        $command = json_decode($line, true, flags: JSON_THROW_ON_ERROR);
        $line = '';
        try {
            $does[$command['do']]($command);
            $report();
            if (!in_array($command['do'], ['submit', 'attach', 'bench'], true)) {
                tell(tag: $command['tag'], ok: true);
            }
        } catch (Throwable $e) {
            $report();
            tell(tag: $command['tag'], error: failure($e));
        }
    }
    $jobs->close();
}

/** @param array<string, mixed> $told */
function worker(Settings $settings, array $told): void
{
    $released = [];
    $handler = static function (Job $job) use (&$released): mixed {
        try {
            $body = $job->raw->value();
        } catch (JsonException) {
            $body = null;
        }
        $told = $body instanceof stdClass ? get_object_vars($body) : [];
        if (isset($told['fail'])) {
            throw new RuntimeException($told['fail']);
        }
        if (isset($told['fatal'])) {
            throw new Fatal($told['fatal']);
        }
        if (isset($told['retry_after'])) {
            throw new RetryAfter($told['retry_after'] / 1000, 'later');
        }
        if (isset($told['release']) && !isset($released[$job->id])) {
            $released[$job->id] = true;
            throw new Release($told['release'] / 1000);
        }
        if (isset($told['progress'])) {
            $job->progress($told['progress']);
        }
        if (isset($told['unwanted'])) {
            while (!$job->unwanted(60.0)) {
            }
            tell(unwanted: $job->id);
            throw new RuntimeException('unwanted');
        }
        if (isset($told['sleep'])) {
            for ($until = microtime(true) + $told['sleep'] / 1000; ($left = $until - microtime(true)) > 0;) {
                usleep((int) ($left * 1e6)); // a signal ends a sleep
            }
        }
        if (isset($told['exit'])) {
            posix_kill(posix_getpid(), SIGKILL);
        }
        if (isset($told['headers'])) {
            return (object) $job->headers;
        }

        return isset($told['type']) ? $job->type : $job->raw;
    };
    $types = $told['types'];
    $worker = new Worker(
        count($types) === 1 && !str_contains($types[0], '*') ? $types[0] : $types,
        $handler,
        $settings,
        $told['except'] ?? [],
        $told['headers'] ?? false,
    );
    $worker->onJoined(static fn () => tell(joined: true));
    $concurrency = $told['concurrency'] ?? 1;
    $concurrency === 1 ? $worker->run() : $worker->fork($concurrency);
    tell(left: true);
}

$role === 'worker' ? worker($settings, $told) : submitter($settings, $told);
