<?php

declare(strict_types=1);

namespace Gloom\Tests;

use Gloom\Connection;
use Gloom\Exception\ClosedException;
use Gloom\Exception\LostException;
use Gloom\Exception\NotConnectedException;
use Gloom\Exception\RefusedException;
use Gloom\Job;
use Gloom\RetryAfter;
use Gloom\Settings;
use Gloom\Submitter;
use Gloom\Wire;
use Gloom\Worker;
use PHPUnit\Framework\TestCase;

/**
 * Clients in processes of their own, with brokers that fall silent or refuse them.
 *
 * @requires extension pcntl
 * @requires extension posix
 */
final class TroubleTest extends TestCase
{
    /** @var resource the broker's side */
    private $listener;
    private string $addr;
    private int $pid = 0;

    protected function setUp(): void
    {
        [$this->listener, $this->addr] = self::listen();
    }

    protected function tearDown(): void
    {
        if ($this->pid > 0) {
            posix_kill($this->pid, SIGKILL);
            pcntl_waitpid($this->pid, $status);
        }
    }

    /** @return array{resource, string} */
    private static function listen(): array
    {
        $listener = stream_socket_server('tcp://127.0.0.1:0') ?: self::fail('no listener');

        return [$listener, (string) stream_socket_get_name($listener, false)];
    }

    /** @param \Closure(): void $work what the child does; then it ends with status 0 */
    private function fork(\Closure $work): void
    {
        $this->pid = pcntl_fork();
        if ($this->pid === 0) {
            try {
                $work();
                pcntl_exec('/bin/true'); // so that the child does not run the rest of the test
            } finally {
                posix_kill(posix_getpid(), SIGKILL);
            }
        }
    }

    /** Runs a worker of type "echo" in a process of its own. */
    private function work(\Closure $handler): void
    {
        $this->fork(fn () => (new Worker('echo', $handler, new Settings($this->addr, connectTimeout: 0.3)))->run());
    }

    /**
     * @param resource $stream
     * @return array<string, mixed>
     */
    private static function take($stream): array
    {
        /** @var array{1: int} $size */
        $size = unpack('N', (string) fread($stream, Wire::HEADER));

        return Wire::decode((string) fread($stream, $size[1]));
    }

    /**
     * @param ?resource $listener
     * @param array<string, mixed> $reply
     * @return resource a connection whose hello has got this reply
     */
    private function accept($listener = null, array $reply = ['ok' => true])
    {
        $stream = stream_socket_accept($listener ?? $this->listener, 10) ?: self::fail('nobody connects');
        stream_set_timeout($stream, 10);
        self::assertSame('hello', self::take($stream)['action']);
        fwrite($stream, Wire::encode($reply));

        return $stream;
    }

    public function testWorkerWhoseJoinIsNotAnsweredTriesAgain(): void
    {
        $this->work(static fn () => null);
        $silent = $this->accept();
        self::assertSame('join', self::take($silent)['action']);
        self::assertSame('join', self::take($this->accept())['action']);
    }

    /** @return array<string, array{bool}> */
    public static function lastRequests(): array
    {
        return ['leave' => [false], 'release' => [true]];
    }

    /** @dataProvider lastRequests */
    public function testWorkerWhoseLastRequestIsNotAnsweredEnds(bool $releases): void
    {
        $this->work(static fn () => null);
        $broker = $this->accept();
        self::assertSame('join', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]));
        usleep(100_000);
        posix_kill($this->pid, SIGTERM);
        self::assertSame('leave', self::take($broker)['action']);
        if ($releases) { // a job crosses the leave
            fwrite($broker, Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]) . Wire::encode(['ok' => true]));
            self::assertSame(['action' => 'release', 'id' => 'a'], self::take($broker));
        }
        $this->assertEnds();
    }

    private function assertEnds(): void
    {
        for ($n = 0; $n < 100 && pcntl_waitpid($this->pid, $status, WNOHANG) === 0; $n++) {
            usleep(50_000);
        }
        self::assertLessThan(100, $n, 'it waits for the reply');
        $this->pid = 0;
        self::assertSame(0, $status);
    }

    /** @return array<string, array{\Closure(Job): mixed}> */
    public static function lastWords(): array
    {
        $large = str_repeat('x', 8_000_000); // more than a socket takes

        return [
            'respond' => [static fn () => 1],
            'large respond' => [static fn () => $large],
            'fail' => [static fn () => throw new \Exception('no')],
            'progress' => [static fn (Job $job) => $job->progress(1)],
            'large progress' => [static fn (Job $job) => $job->progress($large)],
        ];
    }

    /**
     * @dataProvider lastWords
     * @param \Closure(Job): mixed $handler
     */
    public function testWorkerThatStopsDoesNotWaitForHungBroker(\Closure $handler): void
    {
        $this->work($handler);
        $broker = $this->accept();
        self::assertSame('join', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]));
        usleep(200_000);
        posix_kill($this->pid, SIGTERM);
        $this->assertEnds();
    }

    /** A heartbeat finds a hung broker although the ping waits behind a frame that it does not read. */
    public function testHungBrokerInTheMiddleOfLargeFrameIsGivenUp(): void
    {
        $this->fork(function (): void {
            try {
                (new Submitter(new Settings($this->addr, heartbeat: 0.1)))->do('echo', str_repeat('x', 8_000_000));
            } catch (LostException) {
                return;
            }
            posix_kill(posix_getpid(), SIGKILL);
        });
        $broker = $this->accept();
        $this->assertEnds();
        fclose($broker);
    }

    /** With TLS this is how the loss of any connection looks: what is written is neither taken nor refused. */
    public function testBrokerThatClosesInTheMiddleOfLargeFrameIsGivenUp(): void
    {
        $this->fork(function (): void {
            try {
                (new Submitter($this->addr))->do('echo', str_repeat('x', 8_000_000));
            } catch (LostException) {
                return;
            }
            posix_kill(posix_getpid(), SIGKILL);
        });
        $broker = $this->accept();
        fread($broker, Wire::HEADER);
        usleep(200_000); // more has come than the socket takes
        stream_socket_shutdown($broker, STREAM_SHUT_WR);
        $this->assertEnds();
        fclose($broker);
    }

    public function testDelayOutOfRangeIsLimited(): void
    {
        $this->work(static fn () => throw new RetryAfter(-1.0, 'later'));
        $broker = $this->accept();
        self::take($broker);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]));
        self::assertSame(['action' => 'fail', 'id' => 'a', 'reason' => 'later', 'delay_ms' => 0], self::take($broker));
    }

    /** Another broker that accepts the connection and then says nothing, as a stopped process does. */
    public function testHungBrokerHoldsUpNoOther(): void
    {
        [$hung, $addr] = self::listen();
        $settings = new Settings([$addr, $this->addr], connectTimeout: 5.0);
        $this->fork(static fn () => (new Worker('echo', static fn () => 1, $settings))->run());
        $broker = stream_socket_accept($this->listener, 2.5) ?: self::fail('it waits for the other broker');
        stream_set_timeout($broker, 2);
        self::assertSame('hello', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]));
        self::assertSame('join', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]));
        self::assertSame('respond', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]));
        usleep(100_000);
        posix_kill($this->pid, SIGTERM);
        self::assertSame('leave', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]));
        $this->assertEnds();
        fclose($hung);
    }

    /** Another broker to which no connection comes about, as to a host that is off: its queue is full. */
    public function testBrokerThatCannotBeReachedHoldsUpNoOther(): void
    {
        $context = stream_context_create(['socket' => ['backlog' => 1]]);
        $full = stream_socket_server('tcp://127.0.0.1:0', $code, $text, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context) ?: self::fail($text);
        $addr = (string) stream_socket_get_name($full, false);
        for ($n = 0, $queue = []; $n < 4; $n++) {
            $queue[] = stream_socket_client("tcp://$addr", $code, $text, 1.0, STREAM_CLIENT_CONNECT | STREAM_CLIENT_ASYNC_CONNECT);
        }
        $settings = new Settings([$addr, $this->addr], connectTimeout: 5.0);
        $this->fork(static fn () => (new Worker('echo', static fn () => 1, $settings))->run());
        $broker = stream_socket_accept($this->listener, 2.5) ?: self::fail('it waits for the other broker');
        stream_set_timeout($broker, 2);
        self::assertSame('hello', self::take($broker)['action']);
    }

    /** A handler takes longer than a reply to hello or join may: that is not the silence of its broker. */
    public function testReplyThatCameDuringAHandlerIsRead(): void
    {
        [$second, $addr] = self::listen();
        $settings = new Settings([$this->addr, $addr], connectTimeout: 1.0);
        $this->fork(static fn () => (new Worker('echo', static fn () => usleep(1_500_000), $settings))->run());
        $busy = $this->accept();
        self::assertSame('join', self::take($busy)['action']);
        fwrite($busy, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]));
        $other = $this->accept($second);
        // The replies to join and to hello are read together, after the handler.
        fwrite($other, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'b', 'type' => 'echo', 'body' => 1]));
        self::assertSame('respond', self::take($busy)['action']);
        fwrite($busy, Wire::encode(['ok' => true]));
        self::assertSame('join', self::take($other)['action']);
        self::assertSame('respond', self::take($other)['action']);
    }

    public function testWorkerThatStopsWhileItJoinsGivesTheJobBack(): void
    {
        $this->work(static fn () => 1);
        $broker = $this->accept();
        self::assertSame('join', self::take($broker)['action']);
        posix_kill($this->pid, SIGTERM);
        self::assertSame('leave', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]) . Wire::encode(['ok' => true]));
        self::assertSame(['action' => 'release', 'id' => 'a'], self::take($broker));
        fwrite($broker, Wire::encode(['ok' => true]));
        $this->assertEnds();
    }

    /** The cancel of a job comes with the job itself: so it is after the worker's process was stopped. */
    public function testJobThatIsCancelledBeforeItStartsDoesNotRun(): void
    {
        $this->work(static function (Job $job): string {
            while (!$job->unwanted(1.0)) {
            }

            return 'has run';
        });
        $broker = $this->accept();
        self::take($broker);
        fwrite($broker, Wire::encode(['ok' => true])
            . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1])
            . Wire::encode(['action' => 'cancel', 'id' => 'a']));
        self::assertSame(['action' => 'fail', 'id' => 'a', 'reason' => 'cancelled'], self::take($broker));
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'b', 'type' => 'echo', 'body' => 1]));
        usleep(100_000);
        fwrite($broker, Wire::encode(['action' => 'cancel', 'id' => 'b']));
        self::assertSame(['respond', 'b'], array_slice(array_values(self::take($broker)), 0, 2));
    }

    /** A job of another broker comes while the first one always has a next job. */
    public function testBrokerThatAlwaysHasAJobHoldsUpNoOther(): void
    {
        [$second, $addr] = self::listen();
        $settings = new Settings([$this->addr, $addr], connectTimeout: 1.0);
        $this->fork(static fn () => (new Worker('echo', static fn () => usleep(50_000), $settings))->run());
        $job = static fn (string $id): string => Wire::encode(['action' => 'job', 'id' => $id, 'type' => 'echo', 'body' => 1]);
        [$busy, $other] = [$this->accept(), $this->accept($second)];
        foreach ([$busy, $other] as $broker) {
            self::assertSame('join', self::take($broker)['action']);
            fwrite($broker, Wire::encode(['ok' => true]));
        }
        fwrite($busy, $job('a'));
        for ($n = 0, $at = null; $at !== $other && $n < 10; $n++) {
            [$read, $none] = [[$busy, $other], []];
            stream_select($read, $none, $none, 5);
            $at = end($read);
            $answer = self::take($at);
            if ($at === $busy) {
                fwrite($busy, Wire::encode(['ok' => true]) . $job("a$n"));
                usleep(20_000); // that job runs now
                fwrite($other, $n === 0 ? $job('b') : '');
            }
        }
        self::assertSame('b', $answer['id']);
    }

    public function testWorkerThatWasRefusedMayRunAgain(): void
    {
        $this->fork(function (): void {
            $worker = new Worker('echo', static fn () => 1, new Settings($this->addr, backoff: [0.01, 0.01]));
            try {
                $worker->run(1);
            } catch (RefusedException) {
                $worker->run(1);
            }
        });
        $this->accept(null, ['error' => 'unauthorized', 'reason' => 'r']);
        $broker = $this->accept();
        self::assertSame('join', self::take($broker)['action']);
    }

    public function testHungBrokersAreLeftTogether(): void
    {
        [$second, $addr] = self::listen();
        $settings = new Settings([$this->addr, $addr], connectTimeout: 2.0);
        $this->fork(static fn () => (new Worker('echo', static fn () => 1, $settings))->run());
        $open = [$this->accept(), $this->accept($second)];
        foreach ($open as $broker) {
            self::assertSame('join', self::take($broker)['action']);
        }
        posix_kill($this->pid, SIGTERM);
        foreach ($open as $broker) {
            stream_set_timeout($broker, 1);
            self::assertSame('leave', self::take($broker)['action']);
        }
    }

    /** A connectTimeout of 0 limits no reply, and no large frame. */
    public function testWorkerThatStopsWithoutLimitWaitsForTheReply(): void
    {
        $settings = new Settings($this->addr, connectTimeout: 0.0);
        $this->fork(static fn () => (new Worker('echo', static fn () => str_repeat('x', 8_000_000), $settings))->run());
        $broker = $this->accept();
        self::assertSame('join', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]));
        /** @var array{1: int} $size */
        $size = unpack('N', (string) fread($broker, Wire::HEADER)); // the rest does not fit into the socket
        posix_kill($this->pid, SIGTERM);
        usleep(1_300_000); // the worker looks at the time once a second
        self::assertSame('respond', Wire::decode((string) stream_get_contents($broker, $size[1]))['action']);
        usleep(1_300_000);
        fwrite($broker, Wire::encode(['ok' => true]));
        self::assertSame('leave', self::take($broker)['action']);
    }

    public function testOnJoinedThatThrowsEndsNothing(): void
    {
        $this->fork(function (): void {
            $worker = new Worker('echo', static fn () => 1, new Settings($this->addr));
            $worker->onJoined(static fn () => throw new \LogicException('no'))->run(1);
        });
        $broker = $this->accept();
        self::assertSame('join', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]));
        self::assertSame('leave', self::take($broker)['action']);
    }

    /** A handler that sleeps is woken once, when the processes are stopped. */
    public function testForkedProcessesAreToldOnceToStop(): void
    {
        $this->fork(function (): void {
            $worker = new Worker('echo', static function (): int {
                for ($n = 0, $end = hrtime(true) + 5e8; hrtime(true) < $end; $n++) {
                    usleep(500_000);
                }

                return $n;
            }, $this->addr);
            $worker->fork(1);
        });
        $broker = $this->accept();
        self::assertSame('join', self::take($broker)['action']);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['action' => 'job', 'id' => 'a', 'type' => 'echo', 'body' => 1]));
        usleep(100_000);
        posix_kill($this->pid, SIGTERM);
        self::assertSame('leave', self::take($broker)['action']);
        self::assertSame('2', (string) self::take($broker)['body']);
        fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['ok' => true]) . Wire::encode(['ok' => true]));
        $this->assertEnds();
    }

    /** The ok of a cancel is the last that comes on a connection. */
    public function testKeptJobThatWasCancelledIsNotSubmittedAgain(): void
    {
        $this->fork(function (): void {
            $broker = $this->accept();
            self::assertSame('submit', self::take($broker)['action']);
            self::assertSame('cancel', self::take($broker)['action']);
            fwrite($broker, Wire::encode(['ok' => true]) . Wire::encode(['ok' => true]));
            fclose($broker);
        });
        $jobs = new Submitter($this->addr);
        $job = $jobs->submit('echo', id: 'a', keep: 60.0, atLeastOnce: true);
        $jobs->cancel('a');
        self::assertTrue($job->done());
        self::assertSame(0, $jobs->outstanding());
    }

    /** @return array<string, array{bool}> */
    public static function giveUps(): array
    {
        return ['refused' => [false], 'cancelled' => [true]];
    }

    /**
     * A kept job that the broker had accepted, and that it does not know after a loss.
     *
     * @dataProvider giveUps
     */
    public function testForgottenJobIsLost(bool $cancelled): void
    {
        $this->fork(function () use ($cancelled): void {
            $broker = $this->accept();
            self::assertSame('submit', self::take($broker)['action']);
            fwrite($broker, Wire::encode(['ok' => true]));
            fclose($broker);
            $unknown = Wire::encode(['error' => 'unknown_id', 'reason' => 'r', 'id' => 'a']);
            for ($n = 0; !$cancelled && $n < 2; $n++) {
                $broker = $this->accept();
                self::assertSame('attach', self::take($broker)['action']);
                fwrite($broker, $unknown);
                self::assertSame('submit', self::take($broker)['action']);
                $n === 0 ? fclose($broker) : fwrite($broker, Wire::encode(['error' => 'overloaded', 'reason' => 'r', 'id' => 'a']));
            }
            if ($cancelled) {
                $broker = $this->accept();
                self::assertSame('attach', self::take($broker)['action']);
                self::assertSame('cancel', self::take($broker)['action']);
                fwrite($broker, $unknown . $unknown);
                stream_set_timeout($broker, 1);
                self::assertSame('', (string) fread($broker, 1), 'it is submitted again');
            }
            usleep(500_000);
        });
        $jobs = new Submitter($this->addr);
        $job = $jobs->submit('echo', id: 'a', keep: 60.0, atLeastOnce: true);
        $job->ack();
        try {
            if ($cancelled) {
                $jobs->poll(1.0); // the connection is lost
                $jobs->cancel('a');
            }
            $job->result(5.0);
            self::fail('it has not ended');
        } catch (RefusedException $e) {
            self::assertSame([true, 'unknown_id'], [$cancelled, $e->error]);
            self::assertTrue($job->done());
        } catch (LostException $e) {
            self::assertSame([false, true], [$cancelled, $e->acked]);
        }
        self::assertSame(0, $jobs->outstanding());
    }

    /** A message that is read because a ping is due closes the connections, as Submitter::close does. */
    public function testCallbackMayCloseConnectionsThatAreWaitedFor(): void
    {
        $settings = new Settings($this->addr, heartbeat: 0.1);
        $open = $streams = [];
        foreach ([0, 1] as $n) {
            $open[$n] = new Connection($this->addr, $settings, static function (): void {
            });
            $streams[$n] = $this->accept();
        }
        $open[1]->onMessage = static fn () => $open[0]->close(new ClosedException('closed'));
        for ($end = Connection::now() + 0.2; Connection::now() < $end;) {
            Connection::pump($open, 0.05); // until both have sent a ping
        }
        usleep(250_000);
        fwrite($streams[0], Wire::encode(['ok' => true]));
        fwrite($streams[1], Wire::encode(['id' => 'a', 'body' => 1]));
        Connection::pump($open, 0.0);
        self::assertSame([true, false], [$open[0]->ended !== null, $open[1]->ended !== null]);
    }

    public function testTooManyOpenFilesAreTheReason(): void
    {
        for ($n = 0, $open = []; $n < 1024; $n++) {
            $open[$n] = @fopen('/dev/null', 'r') ?: self::fail('this test needs ulimit -n 1100');
        }
        $this->expectException(NotConnectedException::class);
        $this->expectExceptionMessage('open files');
        (new Submitter(new Settings($this->addr, connectTimeout: 1.0)))->connect();
    }

    public function testConnectionThatIsRefusedSaysSo(): void
    {
        fclose($this->listener);
        $at = new Connection($this->addr, new Settings($this->addr), static function (): void {
        });
        while ($at->ended === null) {
            Connection::pump([$at], 1.0);
        }
        self::assertStringContainsString('Connection refused', $at->ended->getMessage());
    }

    public function testSubmitterThatAllBrokersRefuseSaysSo(): void
    {
        [$second, $addr] = self::listen();
        $this->fork(function () use ($second): void {
            $refusal = ['error' => 'unauthorized', 'reason' => 'unknown token'];
            $this->accept(reply: $refusal);
            $this->accept($second, $refusal);
        });
        $this->expectException(RefusedException::class);
        (new Submitter([$this->addr, $addr], wait: 2.0))->submit('echo');
    }
}
