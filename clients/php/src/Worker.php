<?php

declare(strict_types=1);

namespace Gloom;

use Gloom\Exception\ClosedException;
use Gloom\Exception\GloomException;
use Gloom\Exception\LostException;
use Gloom\Exception\NotConnectedException;
use Gloom\Exception\RefusedException;

/**
 * Serves jobs of one or more types, one at a time. What the handler returns is the
 * answer; an exception fails the run, with its text as the reason.
 */
final class Worker
{
    /** The maximum number of bytes of an error's text that are sent as the reason. */
    private const REASON = 4096;

    private readonly Settings $settings;
    /** Seconds that a reply may take; a connectTimeout of 0 limits none. */
    private readonly float $limit;
    /** @var array<string, mixed> */
    private readonly array $join;
    /** @var array<string, Connection> by address; brokers that are in joining, too, have not replied to hello or join */
    private array $joined = [];
    /** @var array<string, array{float, bool}> by address: when the reply must have come, and whether it is that to join */
    private array $joining = [];
    /** @var array<string, RefusedException> by address: why the last attempt would fail again */
    private array $refusals = [];
    private bool $stopping = false;
    /** @var list<array{Connection, array<string, mixed>}> jobs that have come but have not started */
    private array $waiting = [];
    /** @var ?resource a stream that ends when the parent process does */
    private $parent = null;
    /** The connection from which the running job came. */
    private ?Connection $at = null;
    private ?string $running = null;
    private bool $unwanted = false;
    /** @var ?\Closure(string): void */
    private ?\Closure $onJoined = null;

    /**
     * @param string|array<string> $type the type, or an array of types in which * matches any characters
     * @param \Closure(Job): mixed $handler
     * @param string|array<string>|Settings $settings addresses, or all settings
     * @param array<string> $except types and patterns to leave out, if type is an array
     * @param bool $headers jobs come with their headers
     */
    public function __construct(
        string|array $type,
        private readonly \Closure $handler,
        string|array|Settings $settings = [],
        array $except = [],
        bool $headers = false,
    ) {
        $this->settings = $settings instanceof Settings ? $settings : new Settings($settings);
        $this->limit = $this->settings->connectTimeout ?: INF;
        if ($type === [] || $except !== [] && is_string($type)) {
            throw new \InvalidArgumentException($type === [] ? 'type: an empty array' : 'except: only with an array of types');
        }
        $this->join = [
            'action' => 'join',
            'type' => is_string($type) ? Wire::name('type', $type) : null,
            'types' => is_string($type) ? null : Wire::names('type', $type),
            'except' => $except === [] ? null : Wire::names('except', $except),
            'prefetch' => 1,
            'cancel' => true,
            'headers' => $headers ?: null,
        ];
    }

    /**
     * Sets a function that is called with the address whenever the worker has joined a broker;
     * what it throws is only logged.
     *
     * @param \Closure(string): void $call
     */
    public function onJoined(\Closure $call): self
    {
        $this->onJoined = $call;

        return $this;
    }

    /**
     * Serves jobs until stop is called or, if PHP has pcntl, SIGTERM or SIGINT comes; it first
     * finishes and answers the running job. It joins all brokers, and has at most one job of each.
     *
     * @param ?int $jobs return after this many, for processes that are restarted now and then
     * @throws RefusedException if all brokers refuse the worker permanently
     */
    public function run(?int $jobs = null): void
    {
        $before = $this->catchSignals();
        try {
            /** @var array<string, array{float, Backoff}> $due when to try again each broker that is not joined */
            $due = [];
            foreach ($this->settings->addrs('worker') as $addr) {
                $due[$addr] = [0.0, new Backoff($this->settings->backoff)];
            }
            while (!$this->stopping && $jobs !== 0) {
                $next = $this->joinAll($due);
                $others = $this->parent === null ? [] : [$this->parent];
                // A signal that comes just before the wait does not end it.
                $wait = $this->waiting === [] ? min($next, 1.0) : 0.0;
                if (Connection::pump($this->joined, $wait, $others) !== []) {
                    $this->stop();
                }
                // One, so that what other brokers have sent meanwhile is read before the next.
                $job = $this->stopping ? null : array_shift($this->waiting);
                if ($job !== null && $job[0]->ended === null) { // else it goes to another worker
                    $this->work($job[0], $job[1], $jobs === 1);
                    $jobs = $jobs === null ? null : $jobs - 1;
                }
            }
            $this->leave();
        } finally {
            foreach ($this->joined as $at) {
                $at->close(new ClosedException('the worker has ended'));
            }
            [$this->joined, $this->joining, $this->refusals, $this->waiting] = [[], [], [], []];
            foreach ($before as $signal => $handler) {
                pcntl_signal($signal, $handler);
            }
        }
    }

    /** Takes no more jobs: run returns when the running one is answered. A handler may call it. */
    public function stop(): void
    {
        $this->stopping = true;
        foreach ($this->joined as $at) {
            $at->patience = min($at->patience, $this->limit);
        }
    }

    /**
     * Serves jobs in several processes, each with a socket of its own; one that dies is
     * replaced. SIGTERM and SIGINT stop all of them, and so does the end of this process.
     * Needs pcntl and posix.
     *
     * @param int $processes the number of processes
     * @param ?int $jobs how many jobs a process runs before it is replaced
     */
    public function fork(int $processes, ?int $jobs = null): void
    {
        Wire::integer('processes', $processes, 1, 10_000);
        /** @var array<int, float> $children when each started, by pid */
        $children = [];
        $told = false;
        $life = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0)
            ?: throw new \RuntimeException('fork: no socket pair');
        $before = $this->catchSignals();
        try {
            while (!$this->stopping || $children !== []) {
                while (!$this->stopping && count($children) < $processes) {
                    $pid = pcntl_fork();
                    if ($pid < 0) {
                        throw new \RuntimeException('fork: ' . pcntl_strerror(pcntl_get_last_error()));
                    }
                    if ($pid === 0) {
                        fclose($life[0]);
                        $this->parent = $life[1];
                        $this->child($jobs);
                    }
                    $children[$pid] = Connection::now();
                }
                if ($this->stopping && !$told) { // once, because a signal interrupts what a handler does
                    $told = true;
                    foreach ($children as $pid => $_) {
                        posix_kill($pid, SIGTERM);
                    }
                }
                $pid = pcntl_waitpid(-1, $status, WNOHANG);
                if ($pid > 0 && isset($children[$pid])) {
                    $well = pcntl_wifexited($status) && pcntl_wexitstatus($status) === 0;
                    if (!$well) {
                        $this->settings->log('error', "process $pid ended with status $status");
                        usleep(Connection::now() - $children[$pid] < 1 ? 500_000 : 0); // limits how fast processes that die are replaced
                    }
                    unset($children[$pid]);
                } else {
                    usleep(20_000);
                }
            }
        } finally {
            foreach ($before as $signal => $handler) {
                pcntl_signal($signal, $handler);
            }
        }
    }

    private function child(?int $jobs): never
    {
        try {
            $this->run($jobs);
            exit(0);
        } catch (\Throwable $e) {
            $this->settings->log('error', $e->getMessage(), ['exception' => $e]);
            exit(1);
        }
    }

    /**
     * Begins to join the brokers that are due.
     *
     * @param array<string, array{float, Backoff}> $due
     * @return float seconds until the next one is due
     */
    private function joinAll(array &$due): float
    {
        if ($this->joining !== []) {
            Connection::pump($this->joined, 0.0); // replies that came while a handler ran
        }
        $next = 60.0;
        foreach ($due as $addr => [$at, $backoff]) {
            $old = $this->joined[$addr] ?? null;
            $late = ($this->joining[$addr][0] ?? INF) - Connection::now();
            if ($late <= 0) {
                $old?->close(new NotConnectedException("no reply within {$this->settings->connectTimeout} s"));
            }
            if ($old !== null && $old->ended === null) {
                $next = min($next, $late);
                continue;
            }
            if ($old !== null) {
                $joined = !isset($this->joining[$addr]);
                if ($joined) {
                    $backoff->lasted(Connection::now() - $old->openedAt);
                }
                unset($this->joined[$addr], $this->joining[$addr]);
                $at = $this->postpone($due, $addr, $old->ended);
                if ($joined) {
                    unset($this->refusals[$addr]); // it is not the refusal of a join
                }
            }
            if ($at <= Connection::now() && !$this->stopping) {
                try {
                    $this->joinOne($addr);
                    $next = 0.0; // it may have failed already
                    continue;
                } catch (GloomException $e) {
                    $at = $this->postpone($due, $addr, $e);
                }
            }
            $next = min($next, $at - Connection::now());
        }
        if (count($this->refusals) === count($due)) {
            throw reset($this->refusals);
        }

        return $next;
    }

    /**
     * Postpones the next attempt at a broker; returns its time.
     *
     * @param array<string, array{float, Backoff}> $due
     */
    private function postpone(array &$due, string $addr, \Throwable $why): float
    {
        $this->settings->log('warning', "$addr: {$why->getMessage()}");
        unset($this->refusals[$addr]);
        if ($why instanceof RefusedException && $why->isFinal()) {
            $this->refusals[$addr] = $why;
        }

        return $due[$addr][0] = Connection::now() + $due[$addr][1]->wait();
    }

    private function joinOne(string $addr): void
    {
        $at = new Connection($addr, $this->settings, $this->onGreeted(...));
        $this->joined[$addr] = $at;
        $this->joining[$addr] = [Connection::now() + $this->limit, false];
        $at->onMessage = function (array $message) use ($at): void {
            $action = $message['action'] ?? null;
            if ($action === 'job' && isset($message['id'], $message['type'], $message['body'])) {
                $this->waiting[] = [$at, $message];
            } elseif ($action === 'cancel') {
                $this->onCancel($at, $message['id']);
            }
        };
    }

    /** Handles the reply to hello. */
    private function onGreeted(Connection $at, ?GloomException $error): void
    {
        if ($error !== null) {
            $at->close($error);
        }
        if ($error !== null || $this->stopping) {
            return;
        }
        $this->joining[$at->addr] = [Connection::now() + $this->limit, true];
        $at->ask(Wire::encode($this->join), function (?GloomException $error) use ($at): void {
            if ($error !== null) {
                $at->close($error);

                return;
            }
            unset($this->joining[$at->addr], $this->refusals[$at->addr]);
            $this->settings->log('debug', "$at->addr: joined");
            try {
                $this->onJoined?->__invoke($at->addr);
            } catch (\Throwable $e) {
                $this->settings->log('error', "onJoined: {$e->getMessage()}", ['exception' => $e]);
            }
        });
    }

    /** Nobody waits for a job of this broker any more: one that has not started does not run. */
    private function onCancel(Connection $at, string $id): void
    {
        if ($at === $this->at && $id === $this->running) {
            $this->unwanted = true;

            return;
        }
        foreach ($this->waiting as $i => [$from, $message]) {
            if ($from === $at && $message['id'] === $id) {
                array_splice($this->waiting, $i, 1);
                $frame = Wire::encode(['action' => 'fail', 'id' => $id, 'reason' => 'cancelled']);
                $at->ask($frame, static function (): void {
                }, $id);

                return;
            }
        }
    }

    /** Leaves all brokers, and gives back jobs that have not started. */
    private function leave(): void
    {
        // Those that were not asked for jobs must not join now.
        $asked = array_filter($this->joined, fn (string $addr): bool => $this->joining[$addr][1] ?? true, ARRAY_FILTER_USE_KEY);
        $open = count($asked);
        $late = Connection::now() + $this->limit;
        foreach ($asked as $at) {
            $told = function (?GloomException $error) use (&$open): void {
                $open--;
                if ($error !== null) {
                    $this->settings->log('warning', $error->getMessage());
                }
            };
            $at->ask(Wire::encode(['action' => 'leave']), function (?GloomException $error) use ($at, $told, &$open): void {
                foreach ($error === null ? $this->waiting : [] as [$from, $message]) {
                    if ($from === $at) {
                        $open++;
                        $at->ask(Wire::encode(['action' => 'release', 'id' => $message['id']]), $told, $message['id']);
                    }
                }
                $told($error);
            });
        }
        while ($open > 0 && ($left = $late - Connection::now()) > 0) {
            Connection::pump($asked, $left);
        }
    }

    /** @param array<string, mixed> $message */
    private function work(Connection $at, array $message, bool $last): void
    {
        [$this->at, $this->running, $this->unwanted] = [$at, $message['id'], false];
        try {
            $answer = $this->respond($message);
        } catch (\Throwable $e) {
            $answer = $this->failure($message['id'], $e);
        }
        if (strlen($answer) - Wire::HEADER > $at->maxFrame) {
            $size = strlen($answer) - Wire::HEADER;
            $answer = $this->failure($message['id'], new Fatal("answer of $size bytes, at most $at->maxFrame are allowed"));
        }
        $this->running = null;
        if ($last || $this->stopping) {
            // The leave goes first, so that the broker sends no further job after the answer.
            $at->ask(Wire::encode(['action' => 'leave']), static function (): void {
            });
        }
        try {
            try {
                $this->request($at, $answer, $message['id']);
            } catch (RefusedException $e) {
                if ($e->error !== 'unknown_id') {
                    $this->request($at, $this->failure($message['id'], new Fatal("answer {$e->getMessage()}")), $message['id']);
                }
            }
        } catch (LostException) {
            // Its job goes to another worker.
        } catch (RefusedException $e) {
            $at->close($e); // otherwise the broker might take the job to be running here
        }
    }

    /** @param array<string, mixed> $message */
    private function respond(array $message): string
    {
        /** @var RawJson $raw */
        $raw = $message['body'];
        try {
            $body = $this->settings->raw ? $raw : $raw->value();
        } catch (\JsonException $e) {
            throw new Fatal("body: {$e->getMessage()}; a worker with raw: true can read it");
        }
        $headers = is_array($message['headers'] ?? null) ? $message['headers'] : [];
        $answer = ($this->handler)(new Job($this, $message['id'], $message['type'], $raw, $body, $headers));
        try {
            return Wire::encode(['action' => 'respond', 'id' => $message['id'], 'body' => RawJson::from($answer)]);
        } catch (\JsonException $e) {
            throw new Fatal("answer: {$e->getMessage()}");
        }
    }

    /** The frame for a run whose handler threw. */
    private function failure(string $id, \Throwable $e): string
    {
        $delay = $e instanceof Release || $e instanceof RetryAfter ? Wire::millis('delay', min(Wire::YEAR, max(0.0, $e->delay))) : null;
        if ($e instanceof Release) {
            return Wire::encode(['action' => 'release', 'id' => $id, 'delay_ms' => $delay ?: null]);
        }
        $meant = $e instanceof Fatal || $e instanceof RetryAfter;
        if (!$meant && !$this->unwanted) {
            $this->settings->log('error', "job \"$id\": {$e->getMessage()}", ['exception' => $e]);
        }
        $reason = $meant ? $e->getMessage() : trim($e::class . ': ' . $e->getMessage(), ': ');
        if (strlen($reason) > self::REASON) {
            $reason = substr($reason, 0, self::REASON) . '…';
        }
        if (preg_match('//u', $reason) !== 1) { // the cut may have split a character
            $reason = (string) preg_replace('/[^\x00-\x7f]+/', '?', $reason);
        }

        return Wire::encode([
            'action' => 'fail', 'id' => $id, 'reason' => $reason === '' ? 'failed by the worker' : $reason, 'retry' => $e instanceof Fatal ? false : null,
            'delay_ms' => $delay,
        ]);
    }

    /** Sends a request about the job with this id, and waits for its reply. */
    private function request(Connection $at, string $frame, ?string $id = null): void
    {
        $told = false;
        $at->ask($frame, static function (?GloomException $error) use (&$told): void {
            $told = $error ?? true;
        }, $id);
        $askedAt = Connection::now();
        while ($told === false) {
            Connection::pump([$at], 1.0); // a signal that comes just before the wait does not end it
            $silence = Connection::now() - $askedAt;
            if ($told === false && $this->stopping && $silence >= $this->limit) {
                $at->close(new NotConnectedException(sprintf('no reply within %.1f s', $silence)));
            }
        }
        if ($told instanceof GloomException) {
            throw $told;
        }
    }

    /** @internal */
    public function progress(Job $job, mixed $body): void
    {
        $frame = Wire::encode(['action' => 'progress', 'id' => $job->id, 'body' => RawJson::from($body)]);
        if ($this->at !== null && $this->running === $job->id) {
            try {
                $this->request($this->at, $frame, $job->id);
            } catch (GloomException) {
                // The run has ended; unwanted will report it.
            }
        }
    }

    /** @internal */
    public function unwanted(Job $job, float $within): bool
    {
        $gone = fn (): bool => $this->running !== $job->id || $this->unwanted || $this->at?->ended !== null;
        $late = Connection::now() + $within;
        do {
            if ($this->at !== null && !$gone()) {
                Connection::pump([$this->at], max(0.0, $late - Connection::now()));
            }
        } while (!$gone() && Connection::now() < $late);

        return $gone();
    }

    /** @return array<int, mixed> the previous handlers */
    private function catchSignals(): array
    {
        if (!function_exists('pcntl_async_signals')) {
            return [];
        }
        pcntl_async_signals(true);
        $before = [];
        foreach ([SIGTERM, SIGINT] as $signal) {
            $before[$signal] = pcntl_signal_get_handler($signal);
            pcntl_signal($signal, $this->stop(...), false);
        }

        return $before;
    }
}
