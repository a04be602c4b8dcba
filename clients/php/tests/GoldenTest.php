<?php

declare(strict_types=1);

namespace Gloom\Tests;

use Gloom\Exception\ProtocolException;
use Gloom\RawJson;
use Gloom\Settings;
use Gloom\Submitter;
use Gloom\Wire;
use Gloom\Worker;
use PHPUnit\Framework\TestCase;

/** The golden frames that all clients must agree on, read in place, and the input that is refused before anything is sent. */
final class GoldenTest extends TestCase
{
    /** @return list<array<string, mixed>> */
    private static function cases(string $name): array
    {
        $text = (string) file_get_contents(__DIR__ . "/../../../wire/testdata/$name.json");
        $cases = json_decode($text, true, 1024, JSON_THROW_ON_ERROR | JSON_BIGINT_AS_STRING)['cases'];
        self::assertNotEmpty($cases);

        return $cases;
    }

    public function testMessageThatIsNestedTooDeepIsNotSent(): void
    {
        $levels = static fn (int $n): string => str_repeat('[', $n) . str_repeat(']', $n);
        foreach ([RawJson::of(...), static fn (string $json): RawJson => RawJson::from(json_decode($json, false, 2000))] as $make) {
            self::assertStringContainsString($levels(1023), Wire::encode(['body' => $make($levels(1023))]));
            try {
                $make($levels(1024));
                self::fail('1024 levels in a body were taken');
            } catch (\JsonException) {
            }
        }
    }

    /** Such a body is the matter of its job: a worker that refused the frame would lose its other jobs, too. */
    public function testBodyThatPhpCannotHoldIsTaken(): void
    {
        foreach (['{"\u0000x":1}', '["\ud800"]', '{"a\\\\u12":["\u0000","\ud800\\n"],"\u0000":{}}'] as $body) {
            self::assertSame($body, (string) Wire::decode('{"action":"job","id":"a","type":"t","body":' . $body . '}')['body']);
        }
        foreach (['["\ud800",nothing]', '{"\u0000":' . str_repeat('[', 1024) . str_repeat(']', 1024) . '}', '["\ud800","\u12"]', '["\ud800"\u0020]'] as $body) {
            try {
                RawJson::of($body);
                self::fail("$body was taken");
            } catch (\JsonException) {
            }
        }
    }

    public function testRepliesMeanWhatTheyShould(): void
    {
        foreach (self::cases('replies') as $case) {
            $message = Wire::decode($case['text']);
            $kind = match (true) {
                is_string($message['error'] ?? null) => 'error',
                isset($message['action']) => $message['action'],
                ($message['ok'] ?? null) === true => 'ok',
                isset($message['body']) => 'result',
                default => 'progress',
            };
            $told = ['kind' => $kind];
            foreach (['id', 'type', 'server', 'state', 'reason', 'cause', 'delay_ms'] as $key) {
                if (isset($message[$key])) {
                    $told[$key] = $message[$key];
                }
            }
            if ($kind === 'error') {
                $told['code'] = $message['error'];
            }
            foreach ($message['limits'] ?? [] as $key => $value) {
                if (isset($case['meaning'][$key])) {
                    $told[$key] = $value;
                }
            }
            $body = $message['body'] ?? $message['progress'] ?? null;
            if ($body !== null) {
                $told['body'] = (string) $body;
            }
            $want = $case['meaning'];
            unset($want['headers']); // values here, bytes there
            ksort($told);
            ksort($want);
            self::assertSame($want, $told, $case['name']);
        }
    }

    public function testRequestsAreWrittenSoThatTheBrokerReadsWhatIsMeant(): void
    {
        $tried = 0;
        foreach ([...self::cases('submitter'), ...self::cases('worker'), ...self::cases('both')] as $case) {
            if (!isset($case['meaning'], $case['text'])) {
                continue;
            }
            $fields = Wire::decode($case['text']);
            if (in_array(null, $fields, true)) {
                continue; // null is absent, and is not written
            }
            $frame = Wire::encode($fields);
            self::assertSame(strlen($frame) - Wire::HEADER, unpack('N', $frame)[1] ?? 0);
            $again = Wire::decode(substr($frame, Wire::HEADER));
            self::assertEquals($fields, $again, $case['name']);
            self::assertSame((string) ($fields['body'] ?? ''), (string) ($again['body'] ?? ''), $case['name']);
            $tried++;
        }
        self::assertGreaterThan(50, $tried);
    }

    public function testFramesThatAreNoObjectAreRefused(): void
    {
        foreach (['', '[]', '5', 'null', '{', '{"a"}', '{"a":1,}', '{"a":1}x', '{"a" 1}', '{"a":"', '"x"', '{"body":}'] as $text) {
            try {
                Wire::decode($text);
                self::fail("taken: $text");
            } catch (ProtocolException) {
                $this->addToAssertionCount(1);
            }
        }
    }

    public function testRawJsonIsJsonAndPassesAsItIs(): void
    {
        $text = ' {"price": 1.10, "id": 1E400, "big": 123456789012345678901234567890, "half": "\ud800"} ';
        self::assertStringEndsWith("{\"body\":$text}", Wire::encode(['body' => RawJson::of($text)]));
        foreach (['', '{', '1,"id":2', 'nul', "\"\xff\""] as $wrong) {
            try {
                RawJson::of($wrong);
                self::fail("taken: $wrong");
            } catch (\JsonException) {
                $this->addToAssertionCount(1);
            }
        }
        self::assertSame('{}', (string) RawJson::from(RawJson::of('{}')->value()), 'an object is not an array');
        self::assertSame('{"a":[1.5,{}]}', (string) RawJson::from(['a' => RawJson::of('[1.50, {}]')]), 'within another value');
        $this->expectException(\JsonException::class);
        RawJson::from(['x' => NAN]);
    }

    /** PHP's strings cannot hold an unpaired surrogate, which headers may have as bodies may. */
    public function testHeadersWithUnpairedSurrogatesAreTaken(): void
    {
        $headers = '{"half":"\ud800","cut\udc00":["x\uD83D","\ud800\u0041"],"whole":"\ud83d\ude00","told":"\\\\ud800","n":[{}]}';
        $frame = Wire::decode('{"action":"job","id":"a","type":"t","headers":' . $headers . ',"body":"\ud800"}');
        self::assertSame([
            'half' => "\u{fffd}", "cut\u{fffd}" => ["x\u{fffd}", "\u{fffd}A"], 'whole' => "\u{1f600}", 'told' => '\\ud800', 'n' => [[]],
        ], $frame['headers']);
    }

    public function testMisuseIsToldBeforeAnythingIsSent(): void
    {
        $nobody = new Submitter(new Settings('127.0.0.1:1', backoff: [0.001, 0.001]), wait: 0.01);
        $wrong = [
            'id' => static fn () => $nobody->submit('t', id: ''),
            'a long id' => static fn () => $nobody->submit('t', id: str_repeat('x', 1025)),
            'type' => static fn () => $nobody->submit("\xff"),
            'delay' => static fn () => $nobody->submit('t', delay: -1),
            'not a number' => static fn () => $nobody->submit('t', timeout: NAN),
            'backoff' => static fn () => $nobody->submit('t', backoff: 86_401),
            'retries' => static fn () => $nobody->submit('t', retries: 1001),
            'keep with detach' => static fn () => $nobody->submit('t', keep: 1, detach: true),
            'atLeastOnce alone' => static fn () => $nobody->submit('t', atLeastOnce: true),
            'address' => static fn () => new Settings('localhost'),
            'port' => static fn () => new Settings('localhost:99999'),
            'window' => static fn () => new Submitter(window: 0),
            'except' => static fn () => new Worker('t', static fn () => null, except: ['a']),
            'no types' => static fn () => new Worker([], static fn () => null),
        ];
        foreach ($wrong as $what => $do) {
            try {
                $do();
                self::fail("taken: $what");
            } catch (\InvalidArgumentException) {
                $this->addToAssertionCount(1);
            }
        }
        $this->expectException(\Error::class);
        $nobody->submit('t', prioritty: 1);
    }
}
