<?php

declare(strict_types=1);

namespace Gloom;

use Gloom\Exception\ClosedException;
use Gloom\Exception\GloomException;
use Gloom\Exception\LostException;
use Gloom\Exception\NotConnectedException;
use Gloom\Exception\ProtocolException;
use Gloom\Exception\RefusedException;

/**
 * One connection to one broker: it turns bytes into messages, and matches replies to
 * requests. It works only while one of its methods runs.
 *
 * @internal
 */
final class Connection
{
    /** Bytes by which a frame from the broker may exceed maxFrame. */
    private const ENVELOPE = 64 * 1024;

    /** Largest payload that the broker accepts, in bytes. */
    public int $maxFrame;
    /** The error that ended the connection. */
    public ?\Throwable $ended = null;
    /** Whether the broker has reported that it is stopping. */
    public bool $draining = false;
    public readonly float $openedAt;
    /** Seconds that a large frame may wait while nothing is written or read; then the connection is given up. */
    public float $patience;

    /** @var resource */
    private $stream;
    private string $inBuffer = '';
    private string $outBuffer = '';
    private int $maxFrameIn;
    private float $heardAt;
    /** When a ping was sent, if nothing has come since. */
    private ?float $pingedAt = null;
    /** Whether this side of the connection is shut down once the waiting bytes are sent. */
    private bool $outputEnds = false;
    /** @var \SplQueue<string> payloads that have not been handled */
    private \SplQueue $frames;
    /** @var \SplQueue<array{?string, \Closure(?GloomException, array<string, mixed>): void}> */
    private \SplQueue $requests;
    /** @var \Closure(array<string, mixed>): void gets each message other than ok and error */
    public \Closure $onMessage;
    /** @var \Closure(array<string, mixed>, bool): bool gets each error first, and whether it may be a reply; returns whether it ended a job */
    public \Closure $onError;

    /**
     * Connects, sends hello, and waits for the reply. With greeted it does not wait: greeted is
     * called while pump runs, with null or with the error in place of the reply.
     *
     * @param ?\Closure(self, ?GloomException): void $greeted
     */
    public function __construct(public readonly string $addr, private readonly Settings $settings, ?\Closure $greeted = null)
    {
        $this->requests = new \SplQueue();
        $this->frames = new \SplQueue();
        $this->onMessage = static function (array $message): void {
        };
        $this->onError = static fn (array $frame, bool $mayReply): bool => false;
        $this->maxFrame = $settings->maxFrame;
        $this->maxFrameIn = $settings->maxFrame + self::ENVELOPE;
        $this->openedAt = $this->heardAt = self::now();
        $this->patience = $settings->heartbeat > 0 ? 3 * $settings->heartbeat : INF;
        [$target, $host] = Settings::target($addr, $settings->tls !== null);
        $ssl = ['peer_name' => $host, ...$settings->tls ?? []];
        $context = stream_context_create(['ssl' => $ssl, 'socket' => ['tcp_nodelay' => true]]);
        // With a name, PHP would try only its first address without waiting.
        $waits = $greeted === null || preg_match('~^tcp://(\[|[\d.]+:)~', $target) !== 1;
        $mode = STREAM_CLIENT_CONNECT | ($waits ? 0 : STREAM_CLIENT_ASYNC_CONNECT);
        $stream = @stream_socket_client($target, $code, $text, $settings->connectTimeout, $mode, $context);
        if ($stream === false) {
            $why = $text !== '' ? $text : (error_get_last()['message'] ?? 'TLS failed');
            throw new NotConnectedException("cannot connect to $addr: $why");
        }
        [$read, $none] = [[$stream], []];
        if (@stream_select($read, $none, $none, 0) === false) { // each wait would be over at once
            throw new NotConnectedException("cannot connect to $addr: this process has too many open files for PHP's stream_select");
        }
        stream_set_blocking($stream, false);
        stream_set_read_buffer($stream, 0);
        $this->stream = $stream;
        $hello = ['action' => 'hello', 'token' => $settings->token, 'client' => $settings->client];
        if ($greeted === null) {
            $this->learnLimits($this->request($hello, null, $settings->connectTimeout));

            return;
        }
        $this->ask(Wire::encode($hello), function (?GloomException $error, array $reply) use ($greeted): void {
            $this->learnLimits($reply);
            $greeted($this, $error);
        });
    }

    /** @param array<string, mixed> $hello the reply to hello */
    private function learnLimits(array $hello): void
    {
        $limits = is_array($hello['limits'] ?? null) ? $hello['limits'] : [];
        $this->maxFrame = is_int($limits['max_frame'] ?? null) ? $limits['max_frame'] : $this->maxFrame;
        $this->maxFrameIn = is_int($limits['max_frame_out'] ?? null) ? $limits['max_frame_out'] : $this->maxFrameIn;
    }

    /** @return resource */
    public function stream()
    {
        return $this->stream;
    }

    public function isIdle(): bool
    {
        return $this->requests->isEmpty();
    }

    /**
     * Sends a request; done is called with its reply, or with the error that ended the
     * connection.
     *
     * @param \Closure(?GloomException, array<string, mixed>): void $done
     */
    public function ask(string $frame, \Closure $done, ?string $id = null): void
    {
        if ($this->ended !== null) {
            $done(new LostException($this->ended, $this->addr, $id, false, false), []);

            return;
        }
        $this->requests->enqueue([$id, $done]);
        $this->send($frame);
    }

    /**
     * Sends a request and waits for its reply; other messages that come meanwhile
     * are handled.
     *
     * @param array<string, mixed> $fields
     * @return array<string, mixed>
     */
    public function request(array $fields, ?string $id = null, float $within = 0.0): array
    {
        $told = null;
        $this->ask(Wire::encode($fields), static function (?GloomException $error, array $reply) use (&$told): void {
            $told = $error ?? $reply;
        }, $id);
        $late = $within > 0 ? self::now() + $within : INF;
        while ($told === null) {
            self::pump([$this], $late - self::now());
            if ($told === null && self::now() >= $late) {
                $this->close(new NotConnectedException("no reply within $within s"));
            }
        }
        if ($told instanceof LostException && $told->getPrevious() instanceof RefusedException) {
            throw $told->getPrevious();
        }

        return $told instanceof GloomException ? throw $told : $told;
    }

    /** Shuts down this side of the connection; frames from the broker are still read. */
    public function endOutput(): void
    {
        $this->outputEnds = true;
        $this->flush();
    }

    /** Seconds on a monotonic clock; only differences have a meaning. */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /** Drops the connection with this error. */
    public function close(\Throwable $why): void
    {
        if ($this->ended !== null) {
            return;
        }
        $this->ended = $why;
        fclose($this->stream);
        while (!$this->requests->isEmpty()) {
            [$id, $done] = $this->requests->dequeue();
            $done(new LostException($why, $this->addr, $id), []);
        }
    }

    /**
     * Waits until something comes on one of the connections, for at most this many seconds,
     * and handles it. It can wait for other streams, too.
     *
     * @param array<self> $all
     * @param array<resource> $others
     * @return array<resource> those of the others that can be read
     */
    public static function pump(array $all, float $seconds, array $others = []): array
    {
        $read = $others;
        $write = [];
        foreach ($all as $one) {
            $seconds = $one->ended === null ? min($seconds, $one->beat()) : $seconds;
        }
        foreach ($all as $one) { // after all beats, which read, and so may close any of them
            if ($one->ended === null) {
                $read[] = $one->stream;
                if ($one->outBuffer !== '') {
                    $write[] = $one->stream;
                }
            }
        }
        $seconds = max(0.0, min($seconds, 3600.0)); // as an int, INF would be 0
        if ($read === [] && $others === []) {
            usleep((int) (min($seconds, 0.05) * 1e6));

            return [];
        }
        $none = [];
        // A signal ends the wait; that is not an error.
        if (@stream_select($read, $write, $none, (int) $seconds, (int) (fmod($seconds, 1) * 1e6)) === false) {
            return [];
        }
        foreach ($all as $one) {
            if ($one->ended === null && in_array($one->stream, $write, true)) {
                $one->flush();
            }
            if ($one->ended === null && in_array($one->stream, $read, true)) {
                $one->read();
            }
        }

        return array_values(array_filter($others, static fn ($other): bool => in_array($other, $read, true)));
    }

    /** Sends a ping if one is due, and gives up if nothing comes for two intervals after it; returns the seconds until the next call. */
    private function beat(): float
    {
        $pace = $this->settings->heartbeat;
        if ($pace === 0.0) {
            return INF;
        }
        $left = $this->pingedAt === null ? $this->heardAt + $pace - self::now() : $this->pingedAt + 2 * $pace - self::now();
        if ($left > 0) {
            return $left + 0.001;
        }
        if ($this->pingedAt === null) {
            $this->pingedAt = self::now();
            $this->ask(self::$ping ??= Wire::encode(['action' => 'ping']), static function (): void {
            });

            return 2 * $pace;
        }
        $this->read(); // what arrived while the program did something else
        if ($this->pingedAt !== null) {
            $this->close(new NotConnectedException(sprintf('nothing came for %.1f s', self::now() - $this->heardAt)));
        }

        return 0.0;
    }

    private static ?string $ping = null;
    private static ?string $pong = null;

    private function send(string $frame): void
    {
        if ($this->outputEnds) {
            return;
        }
        $this->outBuffer .= $frame;
        $this->flush();
        // What the socket does not accept stays in the buffer. While the buffer is large we also
        // read, because the broker may not read more before we do.
        $movedAt = self::now();
        while ($this->ended === null && ($size = strlen($this->outBuffer)) > 1024 * 1024) {
            $read = $write = [$this->stream];
            $none = [];
            @stream_select($read, $write, $none, 0, (int) (min($this->patience, 1.0) * 1e6));
            if ($read !== [] && !$this->take()) {
                return; // the next read handles what came before the end, and closes
            }
            $this->flush();
            if (strlen($this->outBuffer) < $size || $this->heardAt > $movedAt) {
                $movedAt = self::now();
            } elseif (($silence = self::now() - $movedAt) >= $this->patience) {
                $this->close(new NotConnectedException(sprintf('nothing was read or sent by the broker for %.1f s', $silence)));
            }
        }
    }

    private function flush(): void
    {
        for ($at = 0; $this->ended === null && $at < strlen($this->outBuffer); $at += $n) {
            // The frame is written in pieces, because the rest of a large frame must not
            // be copied at each write.
            $n = @fwrite($this->stream, substr($this->outBuffer, $at, 1 << 18));
            if ($n === false) {
                $heard = $this->heardAt > $this->openedAt;
                $why = strstr(error_get_last()['message'] ?? '', 'errno=') ?: 'closed';
                $this->close(new NotConnectedException($heard ? 'closed by the broker' : "cannot connect to $this->addr: $why"));
            } elseif ($n === 0) {
                break;
            }
        }
        $this->outBuffer = (string) substr($this->outBuffer, $at);
        if ($this->outputEnds && $this->ended === null && $this->outBuffer === '') {
            @stream_socket_shutdown($this->stream, STREAM_SHUT_WR);
        }
    }

    /** Reads the bytes that have arrived; returns whether more may come. */
    private function take(): bool
    {
        do {
            $chunk = @fread($this->stream, 1 << 16);
            if ($chunk === false || $chunk === '') {
                return $chunk !== false && !feof($this->stream);
            }
            $this->inBuffer .= $chunk;
            $this->heardAt = self::now();
            $this->pingedAt = null;
        } while (strlen($this->inBuffer) < 1 << 20);

        return true;
    }

    /** Splits the bytes that have arrived into frames; returns an error for the caller to throw after these frames. */
    private function splitFrames(): ?ProtocolException
    {
        for ($at = 0; strlen($this->inBuffer) - $at >= Wire::HEADER; $at += Wire::HEADER + $size[1]) {
            /** @var array{1: int} $size */
            $size = unpack('N', $this->inBuffer, $at);
            if ($size[1] > $this->maxFrameIn) {
                return new ProtocolException("frame of $size[1] bytes, at most $this->maxFrameIn are allowed");
            }
            if (strlen($this->inBuffer) - $at < Wire::HEADER + $size[1]) {
                break;
            }
            $this->frames->enqueue(substr($this->inBuffer, $at + Wire::HEADER, $size[1]));
        }
        if ($at > 0) {
            $this->inBuffer = (string) substr($this->inBuffer, $at);
        }

        return null;
    }

    private function read(): void
    {
        $more = $this->take();
        try {
            $frameError = $this->splitFrames();
            // A callback that waits calls this method again. The inner call then continues with
            // the next frame.
            while ($this->ended === null && !$this->frames->isEmpty()) {
                $this->handle(Wire::decode($this->frames->dequeue()));
            }
            if ($frameError !== null) {
                throw $frameError;
            }
        } catch (ProtocolException | RefusedException $e) {
            $this->close($e);
        }
        if (!$more) {
            $this->close(new NotConnectedException('closed by the broker'));
        }
    }

    /** @param array<string, mixed> $message */
    private function handle(array $message): void
    {
        if (array_key_exists('error', $message)) {
            $this->refuse($message);
        } elseif (($message['action'] ?? null) === 'ping') {
            $this->send(self::$pong ??= Wire::encode(['action' => 'pong']));
        } elseif (array_key_exists('ok', $message)) {
            if ($message['ok'] !== true) {
                throw new ProtocolException('an ok that is not true');
            }
            if ($this->requests->isEmpty()) {
                throw new ProtocolException('an ok without a request');
            }
            [$id, $done] = $this->requests->dequeue();
            if ($id !== null && ($message['id'] ?? $id) !== $id) {
                throw new ProtocolException("an ok for another job than \"$id\"");
            }
            $done(null, $message);
        } elseif (isset($message['action']) || isset($message['body']) || isset($message['progress'])) {
            ($this->onMessage)($message);
        }
    }

    /** @param array<string, mixed> $frame */
    private function refuse(array $frame): void
    {
        $this->draining = $this->draining || $frame['error'] === 'draining';
        $id = $frame['id'] ?? null;
        $mayReply = !$this->requests->isEmpty() && ($id === null || $this->requests->bottom()[0] === $id);
        if (($this->onError)($frame, $mayReply)) {
            return;
        }
        $whole = in_array($frame['error'], ['overloaded', 'unauthorized'], true) || $this->requests->isEmpty();
        if ($id === null && $whole) {
            throw new RefusedException($frame); // about the connection
        }
        if ($mayReply) {
            [, $done] = $this->requests->dequeue();
            $done(new RefusedException($frame), []);
        }
    }
}
