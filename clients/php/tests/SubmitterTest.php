<?php

declare(strict_types=1);

namespace Gloom\Tests;

use Gloom\Exception\{BrokerException, ClosedException, JobException, LostException, RefusedException};
use Gloom\RawJson;
use Gloom\Settings;
use Gloom\Submitter;
use Gloom\Wire;
use PHPUnit\Framework\TestCase;

/**
 * The submitter against a broker whose every frame the test writes, in forked processes, too.
 *
 * @requires extension pcntl
 * @requires extension posix
 */
final class SubmitterTest extends TestCase
{
    /** @var resource the broker's side */
    private $listener;
    private string $addr;

    protected function setUp(): void
    {
        $this->listener = stream_socket_server('tcp://127.0.0.1:0') ?: self::fail('no listener');
        $this->addr = (string) stream_socket_get_name($this->listener, false);
    }

    /** @param \Closure(): void $work what the child does */
    private static function fork(\Closure $work): int
    {
        $pid = pcntl_fork();
        if ($pid === 0) {
            try {
                $work();
            } finally {
                posix_kill(posix_getpid(), SIGKILL); // so that the child does not run the rest of the test
            }
        }

        return $pid;
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
     * @return resource a connection on which the hello has arrived
     */
    private function accept($listener = null)
    {
        $stream = stream_socket_accept($listener ?? $this->listener, 10) ?: self::fail('nobody connects');
        stream_set_timeout($stream, 10);
        self::assertSame('hello', self::take($stream)['action']);
        fwrite($stream, Wire::encode(['ok' => true]));

        return $stream;
    }

    public function testIdsOfForkedProcessesDiffer(): void
    {
        $jobs = new Submitter($this->addr);
        $ids = [];
        for ($i = 0; $i < 2; $i++) {
            $pid = self::fork(static function () use ($jobs): void {
                $jobs->submit('echo');
                sleep(10);
            });
            $ids[] = self::take($this->accept())['id'];
            posix_kill($pid, SIGKILL);
            pcntl_waitpid($pid, $status);
        }
        self::assertNotSame($ids[0], $ids[1]);
    }

    public function testAForkedProcessLeavesTheConnectionAlone(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            while (($frame = self::take($stream))['action'] !== 'end') {
                fwrite($stream, Wire::encode(['ok' => true, 'id' => $frame['id'] ?? null]));
            }
        });
        $jobs = new Submitter($this->addr);
        $job = $jobs->submit('echo');
        $jobs->ping();
        $mine = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) ?: self::fail('no pair');
        $child = self::fork(static function () use ($jobs, $job, $mine): void {
            $told = '';
            $calls = [$jobs->connect(...), static fn () => $jobs->submit('echo', id: 'x'), $jobs->ping(...), $job->result(...), $jobs->poll(...)];
            foreach ($calls as $call) {
                try {
                    $call();
                    $told .= 'done ';
                } catch (ClosedException) {
                    $told .= 'closed ';
                }
            }
            $jobs->close();
            fwrite($mine[1], $told);
        });
        fclose($mine[1]);
        self::assertSame(str_repeat('closed ', 5), stream_get_contents($mine[0]));
        pcntl_waitpid($child, $status);
        $jobs->ping();
        self::assertFalse($job->done());
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    public function testTimeOutsideTheClientIsNotSilenceOfTheBroker(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            while (true) {
                $frame = self::take($stream);
                $ok = ['ok' => true, 'id' => $frame['id'] ?? null];
                $answers = $frame['action'] === 'submit' ? [$ok, ['id' => $frame['id'], 'body' => 5]] : [$ok];
                fwrite($stream, implode(array_map(Wire::encode(...), $answers)));
            }
        });
        $jobs = new Submitter(new Settings($this->addr, heartbeat: 0.1));
        for ($n = 0; $n < 2; $n++) {
            $job = $jobs->submit('echo');
            usleep(500_000); // the program does something else
            self::assertSame(5, $job->result(10.0));
            usleep(500_000);
        }
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    public function testPollWithoutALimitWaits(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            $id = self::take($stream)['id'];
            foreach ([['ok' => true, 'id' => $id], ['id' => $id, 'body' => 5]] as $frame) {
                usleep(300_000);
                fwrite($stream, Wire::encode($frame));
            }
            sleep(10);
        });
        $jobs = new Submitter($this->addr);
        $job = $jobs->submit('echo');
        $jobs->poll(INF);
        $jobs->poll(INF);
        self::assertTrue($job->done());
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    public function testFramesOfUnknownKindsAreIgnored(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            $id = self::take($stream)['id'];
            foreach ([['action' => 'dance', 'id' => $id], ['ok' => true, 'id' => $id], ['action' => 'dance', 'id' => $id], ['id' => $id, 'body' => 5]] as $frame) {
                fwrite($stream, Wire::encode($frame));
            }
            sleep(10);
        });
        self::assertSame(5, (new Submitter($this->addr))->submit('echo')->result(10.0));
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    public function testAnErrorAfterTheAckEndsTheJobWhateverItsCode(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            [$a, $b] = [self::take($stream)['id'], self::take($stream)['id']];
            foreach ([['ok' => true, 'id' => $a], ['error' => 'retired', 'reason' => 'r', 'id' => $a], ['error' => 'full', 'reason' => 'r', 'id' => $b]] as $frame) {
                fwrite($stream, Wire::encode($frame));
            }
            sleep(10);
        });
        $jobs = new Submitter($this->addr);
        $one = $jobs->submit('echo');
        $two = $jobs->submit('echo');
        foreach ([[$one, JobException::class, 'retired'], [$two, RefusedException::class, 'full']] as [$job, $class, $code]) {
            try {
                $job->result(10.0);
                self::fail('an answer');
            } catch (BrokerException $e) {
                self::assertInstanceOf($class, $e);
                self::assertSame($code, $e->error);
            }
        }
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    /** Progress that PHP cannot hold, and a callback that throws, concern no other job. */
    public function testProgressThatFailsEndsNoJob(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            $ids = [self::take($stream)['id'], self::take($stream)['id']];
            foreach ($ids as $id) {
                fwrite($stream, Wire::encode(['ok' => true, 'id' => $id]));
            }
            foreach (['"\ud800"', '1'] as $news) {
                fwrite($stream, Wire::encode(['id' => $ids[0], 'progress' => RawJson::of($news)]));
            }
            foreach ($ids as $id) {
                fwrite($stream, Wire::encode(['id' => $id, 'body' => 'done']));
            }
            sleep(10);
        });
        $jobs = new Submitter($this->addr);
        $told = [];
        $first = $jobs->submit('echo', onProgress: static function (mixed $news) use (&$told): void {
            $told[] = $news;
            throw new \LogicException('a faulty callback');
        });
        self::assertSame('done', $jobs->submit('echo')->result(10.0));
        self::assertSame('done', $first->result(10.0));
        self::assertSame([1], $told);
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    public function testKeptJobThatIsRefusedWhenItIsSubmittedAgainMayHaveRun(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            fwrite($stream, Wire::encode(['ok' => true, 'id' => self::take($stream)['id']]));
            fclose($stream);
            $stream = $this->accept();
            foreach (['attach' => 'unknown_id', 'submit' => 'overloaded'] as $action => $error) {
                $asked = self::take($stream);
                self::assertSame($action, $asked['action']);
                fwrite($stream, Wire::encode(['error' => $error, 'reason' => 'r', 'id' => $asked['id']]));
            }
            sleep(10);
        });
        $jobs = new Submitter(new Settings($this->addr, backoff: [0.001, 0.01]));
        try {
            $jobs->submit('echo', keep: 60, atLeastOnce: true)->result(10.0);
            self::fail('an answer');
        } catch (LostException $e) {
            self::assertTrue($e->acked && $e->sent);
            self::assertStringContainsString('overloaded', $e->getMessage());
        }
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    /** Both brokers drain while they have jobs of this submitter, and are started again. */
    public function testSubmitterComesBackWhenAllBrokersHaveDrained(): void
    {
        $second = stream_socket_server('tcp://127.0.0.1:0') ?: self::fail('no listener');
        $broker = self::fork(function () use ($second): void {
            foreach ([$this->listener, $second] as $listener) {
                $open[] = $stream = $this->accept($listener);
                fwrite($stream, Wire::encode(['ok' => true, 'id' => self::take($stream)['id']]));
                fwrite($stream, Wire::encode(['error' => 'draining', 'reason' => 'r', 'id' => self::take($stream)['id']]));
            }
            usleep(500_000); // so that the submitter waits for a broker
            array_map(fclose(...), $open);
            $stream = $this->accept();
            $id = self::take($stream)['id'];
            fwrite($stream, Wire::encode(['ok' => true, 'id' => $id]) . Wire::encode(['id' => $id, 'body' => 'done']));
            sleep(10);
        });
        $addrs = [$this->addr, (string) stream_socket_get_name($second, false)];
        $jobs = new Submitter(new Settings($addrs, backoff: [0.01, 0.1]), wait: 5.0);
        foreach ($addrs as $_) {
            $jobs->submit('echo')->ack(10.0);
            try {
                $jobs->submit('echo')->result(10.0);
                self::fail('an answer');
            } catch (RefusedException $e) {
                self::assertSame('draining', $e->error);
            }
        }
        self::assertSame('done', $jobs->submit('echo')->result(10.0));
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    public function testAnErrorOutOfOrderEndsTheConnection(): void
    {
        $broker = self::fork(function (): void {
            $stream = $this->accept();
            self::take($stream);
            fwrite($stream, Wire::encode(['error' => 'overloaded', 'reason' => 'r', 'id' => self::take($stream)['id']]));
            sleep(10);
        });
        $jobs = new Submitter($this->addr);
        $jobs->submit('echo');
        try {
            $jobs->submit('echo')->result(10.0);
            self::fail('an answer');
        } catch (LostException $e) {
            self::assertStringContainsString('out of order', $e->getMessage());
        }
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }

    public function testAnOkOrErrorOfTheWrongKindEndsTheConnection(): void
    {
        $wrong = [[['ok' => 'true']], [['ok' => true], ['error' => 5, 'reason' => 'r']], [['ok' => true], ['error' => 'job_failed']]];
        $broker = self::fork(function () use ($wrong): void {
            foreach ($wrong as $frames) {
                $open[] = $stream = $this->accept();
                $id = self::take($stream)['id'];
                foreach ($frames as $frame) {
                    fwrite($stream, Wire::encode($frame + ['id' => $id]));
                }
            }
            sleep(10);
        });
        foreach ($wrong as $frames) {
            try {
                (new Submitter($this->addr))->submit('echo')->result(10.0);
                self::fail('an answer');
            } catch (LostException $e) {
                self::assertStringContainsString('is not', $e->getMessage(), json_encode($frames) ?: '');
            }
        }
        posix_kill($broker, SIGKILL);
        pcntl_waitpid($broker, $status);
    }
}
