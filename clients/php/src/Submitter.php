<?php

declare(strict_types=1);

namespace Gloom;

use Gloom\Exception\ClosedException;
use Gloom\Exception\GloomException;
use Gloom\Exception\JobException;
use Gloom\Exception\LostException;
use Gloom\Exception\NotConnectedException;
use Gloom\Exception\ProtocolException;
use Gloom\Exception\RefusedException;

/**
 * Submits jobs to a broker over one connection, many at a time.
 *
 * It connects when it is first used, and again whenever the connection is lost. PHP runs one
 * thing at a time: answers come in while a method waits, and poll reads those that have
 * arrived. In a forked process a submitter that has connected counts as closed.
 */
final class Submitter
{
    /** Codes that end an accepted job, or move it to another connection, even while a reply about it is due. */
    private const ENDS = ['job_failed', 'expired', 'cancelled', 'draining', 'taken_over'];

    private readonly Settings $settings;
    private readonly Backoff $backoff;
    /** The id of the process that uses this object. */
    private int $pid = 0;
    /** The beginning of the ids of the jobs that this process submits. */
    private string $prefix = '';
    private int $count = 0;
    private bool $closed = false;
    private ?Connection $current = null;
    /** @var array<int, Connection> connections to draining brokers that still have our jobs */
    private array $retired = [];
    /** @var array<int, array<string, Pending>> the jobs of each connection */
    private array $jobs = [];
    /** @var list<Pending> kept jobs of a connection that was lost */
    private array $kept = [];
    private string $keptAt = '';
    private int $next = 0;

    /**
     * @param string|array<string>|Settings $settings addresses, or all settings
     * @param int $window the maximum number of jobs submitted and not ended; at the limit submit waits
     * @param ?float $wait seconds that a call waits for a connection; null: without limit
     */
    public function __construct(
        string|array|Settings $settings = [],
        private readonly int $window = 1024,
        private readonly ?float $wait = null,
    ) {
        $this->settings = $settings instanceof Settings ? $settings : new Settings($settings);
        $this->backoff = new Backoff($this->settings->backoff);
        Wire::integer('window', $window, 1, 1_000_000);
    }

    /** The number of jobs submitted and not ended. */
    public function outstanding(): int
    {
        return array_sum(array_map(count(...), $this->jobs)) + count($this->kept);
    }

    /** Connects; throws NotConnectedException or RefusedException if the first attempt fails at all brokers. */
    public function connect(): void
    {
        $this->checkProcess();
        $this->current ?? $this->tryAll();
    }

    /**
     * Submits a job, and returns as soon as it is being sent. Waits for room in the window.
     *
     * @param ?string $type null: the broker's default type
     * @param mixed $body a value that JSON can express, or RawJson
     * @param ?string $id 1 to 1024 bytes, unique in the broker while the job has not ended
     * @param int $priority larger goes first, then the older job
     * @param ?float $delay seconds before the job may be handed out
     * @param ?float $timeout seconds that one run may take; after that the run has failed
     * @param ?int $retries runs after the first, 0 to 1000; the broker's default is 3
     * @param ?float $backoff seconds before the first retry, doubled for each further one; at most a day.
     *     null: 1, unless there are no retries. A job whose worker is lost runs again at once
     * @param ?float $expires seconds from now, including the delay, after which the job does not start
     * @param bool $detach the job outlives its submitter; its answer is discarded
     * @param ?array<string> $groups the groups that the job belongs to, such as its tenant: at most 16 names
     * @param ?float $age the job is ordered as if it had been submitted this many seconds ago
     * @param ?float $keep the job outlives its connection, and its outcome is kept this many seconds, at most a day
     * @param bool $atLeastOnce with keep: submit again if the broker no longer knows the job, even though it may have run
     * @param array<string, mixed>|null $headers for workers that ask for them: at most 4 KiB of JSON
     * @param ?\Closure(mixed): void $onProgress called with the progress that the worker reports; what it throws is only logged
     */
    public function submit(
        ?string $type,
        mixed $body = null,
        ?string $id = null,
        int $priority = 0,
        ?float $delay = null,
        ?float $timeout = null,
        ?int $retries = null,
        ?float $backoff = null,
        ?float $expires = null,
        bool $detach = false,
        ?array $groups = null,
        ?float $age = null,
        ?float $keep = null,
        bool $atLeastOnce = false,
        ?array $headers = null,
        ?\Closure $onProgress = null,
    ): Pending {
        if ($keep && $detach || $atLeastOnce && !$keep) {
            throw new \InvalidArgumentException($detach ? 'keep: not with detach' : 'atLeastOnce: only with keep');
        }
        $this->checkProcess();
        $id = Wire::name('id', $id ?? $this->prefix . base_convert((string) $this->count++, 10, 36));
        $frame = Wire::encode([
            'action' => 'submit',
            'id' => $id,
            'type' => $type === null ? null : Wire::name('type', $type),
            'priority' => $priority === 0 ? null : $priority,
            'delay_ms' => Wire::millis('delay', $delay),
            'timeout_ms' => Wire::millis('timeout', $timeout),
            'retries' => $retries === null ? null : Wire::integer('retries', $retries, 0, 1000),
            'backoff_ms' => Wire::millis('backoff', $backoff ?? ($retries === 0 ? null : 1.0), Wire::DAY),
            'expires_ms' => Wire::millis('expires', $expires),
            'detach' => $detach ?: null,
            'progress' => $onProgress === null ? null : true,
            'groups' => Wire::names('groups', $groups),
            'age_ms' => Wire::millis('age', $age),
            'keep_ms' => Wire::millis('keep', $keep, Wire::DAY),
            'headers' => $headers === null ? null : (object) $headers,
            'body' => RawJson::from($body),
        ]);

        return $this->send(new Pending($this, $id, $frame, $detach, (bool) $keep, $atLeastOnce, $onProgress));
    }

    /**
     * Attaches to a kept job to get its outcome. The connection that had the job gets a
     * JobException "taken_over".
     *
     * @param ?\Closure(mixed): void $onProgress
     */
    public function attach(string $id, ?\Closure $onProgress = null): Pending
    {
        $frame = Wire::encode(['action' => 'attach', 'id' => Wire::name('id', $id), 'progress' => $onProgress ? true : null]);

        return $this->send(new Pending($this, $id, $frame, kept: true, onProgress: $onProgress));
    }

    /** Submits a job and waits for its answer; the arguments are those of submit. */
    public function do(?string $type, mixed $body = null, mixed ...$options): mixed
    {
        return $this->submit($type, $body, ...$options)->result();
    }

    /**
     * Submits a job for each body, as fast as the window allows, and yields each when it has
     * ended, under the key of its body.
     *
     * @template K
     * @param iterable<K, mixed> $bodies
     * @return \Generator<K, Pending>
     */
    public function map(?string $type, iterable $bodies, mixed ...$options): \Generator
    {
        /** @var array<string, array{K, Pending}> $open */
        $open = [];
        foreach ($bodies as $key => $body) {
            $job = $this->submit($type, $body, ...$options);
            $open[$job->id] = [$key, $job];
            if (count($open) >= $this->window) {
                yield from $this->ended($open, 1);
            }
        }
        yield from $this->ended($open, count($open));
    }

    /**
     * Waits until one of these jobs has ended.
     *
     * @param array<Pending> $jobs
     * @return ?Pending null if none has ended within this many seconds
     */
    public function wait(array $jobs, ?float $within = null): ?Pending
    {
        $found = null;
        $this->until(function () use ($jobs, &$found): bool {
            foreach ($jobs as $job) {
                if ($job->done()) {
                    $found = $job;

                    return true;
                }
            }

            return $jobs === [];
        }, $within);

        return $found;
    }

    /** Reads what has arrived, or arrives within this many seconds. */
    public function poll(float $within = 0.0): void
    {
        $this->step($within);
    }

    /** Cancels a job of this submitter, or a detached one; RefusedException "unknown_id" if it has ended. */
    public function cancel(string $id): void
    {
        $at = $this->connectionOf(Wire::name('id', $id));
        $job = $this->jobs[spl_object_id($at)][$id] ?? null;
        if ($job !== null) {
            $job->again = false;
        }
        try {
            $at->request(['action' => 'cancel', 'id' => $id], $id);
            if ($job !== null && !$job->done()) {
                $reason = ['error' => 'cancelled', 'reason' => 'by its submitter', 'id' => $id];
                $this->end($at, $job, null, new JobException($reason));
            }
        } finally {
            $this->tidy();
        }
    }

    /**
     * Changes a waiting job.
     *
     * @param ?array<string> $groups
     */
    public function change(string $id, ?int $priority = null, ?array $groups = null, ?float $delay = null): void
    {
        $this->request($this->connectionOf(Wire::name('id', $id)), [
            'action' => 'change', 'id' => $id, 'priority' => $priority,
            'groups' => Wire::names('groups', $groups), 'delay_ms' => Wire::millis('delay', $delay),
        ], $id);
    }

    /** Sends a ping and waits for the broker's answer. */
    public function ping(): void
    {
        $this->request($this->ready(), ['action' => 'ping']);
    }

    /** Takes no more jobs, waits for the outstanding ones to end, and closes. */
    public function drain(): void
    {
        $this->closed = true;
        $this->until(fn (): bool => $this->outstanding() === 0, null);
        $this->close();
    }

    /**
     * Reads what the broker has sent, for at most this many seconds, and closes. Without a
     * pending kept job it closes at once.
     *
     * The broker forgets the outcome of a kept job once it has sent it; leave delivers such
     * outcomes. The other pending jobs fail as with close, and the broker still keeps the
     * outcomes of those that are kept.
     */
    public function leave(float $within = 2.0): void
    {
        $this->closed = true;
        $kept = array_filter($this->connections(), fn (int $key): bool => array_filter(
            $this->jobs[$key],
            static fn (Pending $job): bool => $job->kept,
        ) !== [], ARRAY_FILTER_USE_KEY);
        foreach ($kept as $one) {
            $one->endOutput();
        }
        $late = Connection::now() + $within;
        $open = static fn (Connection $one): bool => $one->ended === null;
        while (($kept = array_filter($kept, $open)) !== [] && ($left = $late - Connection::now()) > 0) {
            Connection::pump($kept, $left);
        }
        $this->close();
    }

    /**
     * Closes at once; pending jobs fail with a LostException. Outcomes of kept jobs that the
     * broker has sent, but that have not been read, are lost; leave reads them.
     */
    public function close(): void
    {
        $this->closed = true;
        if ($this->forked()) {
            return; // the connections belong to the parent process
        }
        $why = new ClosedException('closed');
        foreach ($this->connections() as $one) {
            $one->close($why);
        }
        $this->tidy();
        $this->dropKept($why);
    }

    /**
     * Returns the streams of the connections, for programs with an event loop: when one is readable, call poll.
     *
     * @return list<resource>
     */
    public function streams(): array
    {
        return array_map(static fn (Connection $one) => $one->stream(), array_values($this->connections()));
    }

    /**
     * Waits until holds returns true; returns false after this many seconds.
     *
     * @internal
     * @param \Closure(): bool $holds
     */
    public function until(\Closure $holds, ?float $within): bool
    {
        $late = $within === null ? INF : Connection::now() + $within;
        while (!$holds()) {
            $left = $late - Connection::now();
            if ($left <= 0) {
                return false;
            }
            if ($this->connections() === [] && $this->kept === []) {
                throw new ClosedException('nothing is pending');
            }
            $this->step(min($left, 60.0));
        }

        return true;
    }

    /** @internal */
    public function open(RawJson $body): mixed
    {
        return $this->settings->raw ? $body : $body->value();
    }

    /** Reads what arrives within this many seconds, and reconnects for kept jobs. */
    private function step(float $seconds): void
    {
        if ($this->current === null && $this->kept !== []) {
            $this->reconnect($seconds);
            $seconds = $this->current === null ? 0.0 : $seconds; // it is time for the next attempt
        }
        Connection::pump($this->connections(), $seconds);
        $this->tidy();
    }

    private function send(Pending $job): Pending
    {
        if ($this->closed) {
            throw new ClosedException('the submitter is closed');
        }
        $this->until(fn (): bool => $this->outstanding() < $this->window, null);
        $at = $this->ready();
        $size = strlen((string) $job->frame) - Wire::HEADER;
        if ($size > $at->maxFrame) {
            $reason = "frame of $size bytes, at most $at->maxFrame are allowed";
            throw new RefusedException(['error' => 'size_error', 'reason' => $reason, 'id' => $job->id]);
        }
        $this->submitAt($at, $job);
        $this->tidy();

        return $job;
    }

    private function submitAt(Connection $at, Pending $job): void
    {
        if (!$this->add($at, $job)) {
            return;
        }
        $job->sent = true;
        $at->ask((string) $job->frame, fn (?GloomException $error) => $this->settle($at, $job, $error), $job->id);
    }

    /** Attaches to a kept job of a lost connection, or submits it if it was never sent. */
    private function resume(Connection $at, Pending $job, bool $again = true): void
    {
        if (!$job->sent) {
            $this->submitAt($at, $job);

            return;
        }
        if (!$this->add($at, $job)) {
            return;
        }
        $frame = Wire::encode(['action' => 'attach', 'id' => $job->id, 'progress' => $job->onProgress ? true : null]);
        $at->ask($frame, function (?GloomException $error) use ($at, $job, $again): void {
            $unknown = $error instanceof RefusedException && $error->error === 'unknown_id';
            if ($unknown && $again && $job->again) {
                $acked = $job->acked;
                $job->acked = false;
                $at->ask((string) $job->frame, function (?GloomException $error) use ($at, $job, $acked): void {
                    $job->acked = $acked; // before, which is what a LostException tells
                    if ($error instanceof RefusedException && $error->error === 'id_exists') {
                        // The submit on the lost connection arrived after the
                        // attach.
                        unset($this->jobs[spl_object_id($at)][$job->id]);
                        $this->resume($at, $job, false);
                    } elseif ($error instanceof RefusedException) { // it may have run before
                        $this->end($at, $job, null, new LostException($error, $at->addr, $job->id, $acked));
                    } else {
                        $this->settle($at, $job, $error);
                    }
                }, $job->id);
            } elseif ($error instanceof RefusedException) {
                $this->end($at, $job, null, new LostException($error, $at->addr, $job->id, $job->acked));
            } else {
                $this->settle($at, $job, $error);
            }
        }, $job->id);
    }

    private function add(Connection $at, Pending $job): bool
    {
        if (isset($this->jobs[spl_object_id($at)][$job->id])) {
            // The broker's refusal would look like the end of the first job.
            $reason = 'a job of this id is pending on this connection';
            $job->end(null, new RefusedException(['error' => 'id_exists', 'reason' => $reason, 'id' => $job->id]));

            return false;
        }
        $this->jobs[spl_object_id($at)][$job->id] = $job;

        return true;
    }

    /** Handles the reply to a submit or attach. */
    private function settle(Connection $at, Pending $job, ?GloomException $error): void
    {
        if ($error instanceof LostException) {
            return; // tidy fails the job
        }
        if ($error !== null) {
            $this->end($at, $job, null, $error);

            return;
        }
        $job->acked = true;
        if (!$job->again) {
            $job->frame = null;
        }
        if ($job->detached) {
            $this->end($at, $job, null, null);
        }
    }

    private function end(Connection $at, Pending $job, ?RawJson $answer, ?\Throwable $error): void
    {
        unset($this->jobs[spl_object_id($at)][$job->id]);
        $job->end($answer, $error);
    }

    /** @param array<string, mixed> $message */
    private function onMessage(Connection $at, array $message): void
    {
        if (isset($message['action'])) {
            return; // ignore a frame of an unknown kind
        }
        $job = is_string($message['id'] ?? null) ? $this->jobs[spl_object_id($at)][$message['id']] ?? null : null;
        if ($job === null) {
            return; // no longer pending
        }
        if (!$job->acked) {
            throw new ProtocolException("a result or progress of job \"$job->id\" before its ack");
        }
        if (isset($message['progress'])) {
            try {
                $job->onProgress?->__invoke($this->open($message['progress']));
            } catch (\Throwable $e) { // whoever reads the connection may be waiting for another job
                $this->settings->log('error', "onProgress of job \"$job->id\": {$e->getMessage()}", ['exception' => $e]);
            }
        } else {
            $this->end($at, $job, $message['body'], null);
        }
    }

    /** @param array<string, mixed> $frame */
    private function onError(Connection $at, array $frame, bool $mayReply): bool
    {
        $job = is_string($frame['id'] ?? null) ? $this->jobs[spl_object_id($at)][$frame['id']] ?? null : null;
        if ($job !== null && !$job->acked && !$mayReply) {
            throw new ProtocolException("an error about job \"$job->id\" out of order");
        }
        if ($job === null || !$job->acked || $mayReply && !in_array($frame['error'], self::ENDS, true)) {
            return false;
        }
        $this->end($at, $job, null, new JobException($frame));

        return true;
    }

    /**
     * @param array<string, mixed> $fields
     * @return array<string, mixed>
     */
    private function request(Connection $at, array $fields, ?string $id = null): array
    {
        try {
            return $at->request($fields, $id);
        } finally {
            $this->tidy();
        }
    }

    /** The connection where a job is pending, else the one for new jobs. */
    private function connectionOf(string $id): Connection
    {
        foreach ($this->connections() as $key => $one) {
            if (isset($this->jobs[$key][$id])) {
                return $one;
            }
        }

        return $this->ready();
    }

    /** The connection for new jobs; connects if there is none. */
    private function ready(): Connection
    {
        Connection::pump($this->connections(), 0.0); // notices if the connection was lost
        $this->tidy();
        $late = $this->wait === null ? INF : Connection::now() + $this->wait;
        while ($this->closed || $this->current === null) { // a callback may close it
            if ($this->closed) {
                throw new ClosedException('the submitter is closed');
            }
            try {
                $this->tryAll();
            } catch (NotConnectedException $e) {
                $wait = $this->backoff->wait();
                if (Connection::now() + $wait > $late) {
                    throw $e;
                }
                $this->pause($wait);
            }
        }

        return $this->current;
    }

    /**
     * Waits before the next attempt to connect, and reads meanwhile: a broker that drains is
     * tried again once it has closed its connection.
     */
    private function pause(float $seconds): void
    {
        $until = Connection::now() + $seconds;
        do {
            Connection::pump($this->connections(), $until - Connection::now());
            $this->tidy();
        } while (Connection::now() < $until);
    }

    /** Tries once to reconnect for kept jobs; after a failure waits at most this many seconds. */
    private function reconnect(float $seconds): void
    {
        try {
            $this->tryAll();
        } catch (RefusedException $e) {
            $this->dropKept($e);
        } catch (NotConnectedException) {
            $this->pause(min($this->backoff->wait(), $seconds));
        }
    }

    /** Tries each broker once, in turn. */
    private function tryAll(): void
    {
        $addrs = $this->settings->addrs('submit');
        if ($this->kept !== []) {
            $this->next = max(0, (int) array_search($this->keptAt, $addrs, true)); // the broker that has the kept jobs comes first
        }
        $told = $refusals = [];
        foreach ($addrs as $_) {
            $addr = $addrs[$this->next++ % count($addrs)];
            foreach ($this->retired as $old) {
                if ($old->addr === $addr) {
                    continue 2; // it is draining
                }
            }
            try {
                $this->adopt(new Connection($addr, $this->settings));

                return;
            } catch (GloomException $e) {
                $told[] = $e->getMessage();
                if ($e instanceof RefusedException && $e->isFinal()) {
                    $refusals[] = $e;
                }
                $this->settings->log('warning', "{$e->getMessage()}");
            }
        }
        if (count($refusals) === count($addrs)) {
            throw $refusals[0];
        }
        throw new NotConnectedException('no broker reached: ' . ($told === [] ? 'the only one is draining' : implode('; ', $told)));
    }

    private function adopt(Connection $new): void
    {
        $this->current = $new;
        $this->jobs[spl_object_id($new)] = [];
        $new->onMessage = function (array $message) use ($new): void {
            $this->onMessage($new, $message);
        };
        $new->onError = fn (array $frame, bool $mayReply): bool => $this->onError($new, $frame, $mayReply);
        $kept = $this->kept;
        $this->kept = [];
        foreach ($kept as $job) {
            if ($job->sent && $new->addr !== $this->keptAt) {
                $cause = new NotConnectedException("now connected to $new->addr");
                $job->end(null, new LostException($cause, $this->keptAt, $job->id, $job->acked));
            } else {
                $this->resume($new, $job);
            }
        }
    }

    /** Whether this process was forked from the one that has connected. */
    private function forked(): bool
    {
        return ($this->jobs !== [] || $this->kept !== []) && $this->pid !== getmypid();
    }

    /** Throws ClosedException in a forked process, which would read its parent's answers. */
    private function checkProcess(): void
    {
        if ($this->forked()) {
            throw new ClosedException('closed: this is a forked process');
        }
        if ($this->pid !== getmypid()) {
            $this->pid = (int) getmypid();
            $this->prefix = rtrim(strtr(base64_encode(random_bytes(9)), '+/', '-_'), '=');
        }
    }

    /** @return array<int, Connection> */
    private function connections(): array
    {
        $this->checkProcess();

        return $this->retired + ($this->current === null ? [] : [spl_object_id($this->current) => $this->current]);
    }

    /** Ends the jobs of lost connections, and moves away from a draining broker. */
    private function tidy(): void
    {
        $current = $this->current;
        foreach ($this->connections() as $key => $one) {
            if ($one->ended === null) {
                if ($one !== $current && $this->jobs[$key] === [] && $one->isIdle()) {
                    $one->close(new ClosedException('nothing pending'));
                } elseif ($one === $current && $one->draining && count($this->settings->addrs) > 1) {
                    $this->retired[$key] = $one;
                    $this->current = null;
                }
                if ($one->ended === null) {
                    continue;
                }
            }
            $lost = $this->jobs[$key];
            unset($this->jobs[$key], $this->retired[$key]);
            if ($one === $current) {
                $this->current = null;
                $this->keptAt = $one->addr;
                $this->backoff->lasted(Connection::now() - $one->openedAt);
                if (!$this->closed) {
                    $this->settings->log('warning', "connection to $one->addr lost: {$one->ended->getMessage()}");
                }
            }
            foreach ($lost as $job) {
                if ($one === $current && $job->kept && !$one->ended instanceof ClosedException) {
                    $this->kept[] = $job;
                } else {
                    $job->end(null, new LostException($one->ended, $one->addr, $job->id, $job->acked, $job->sent));
                }
            }
        }
    }

    private function dropKept(\Throwable $cause): void
    {
        foreach ($this->kept as $job) {
            $job->end(null, new LostException($cause, $this->keptAt, $job->id, $job->acked, $job->sent));
        }
        $this->kept = [];
    }

    /**
     * @template K
     * @param array<string, array{K, Pending}> $open
     * @return \Generator<K, Pending>
     */
    private function ended(array &$open, int $least): \Generator
    {
        while ($least > 0 && $open !== []) {
            $this->wait(array_column($open, 1));
            foreach ($open as $id => [$key, $job]) {
                if ($job->done()) {
                    unset($open[$id]);
                    $least--;
                    yield $key => $job;
                }
            }
        }
    }
}
