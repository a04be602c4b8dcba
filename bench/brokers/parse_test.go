package brokers

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// Every parser finds the same units in a stream however the stream is cut, and finds no unit before
// all bytes of that unit have arrived.
func TestParsersOnEveryCut(t *testing.T) {
	gear := func(typ int, args string) string {
		p := appendPacketHead(nil, typ, len(args))
		p[3] = 'S' // a response
		return string(p) + args
	}
	gloom := func(payload string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(payload)))) + payload
	}
	for name, c := range map[string]struct {
		stream string
		want   []string
		next   func(in []byte) (unit string, used int)
	}{
		"gloom": {
			gloom(`{"ok":true}`) + gloom("") + gloom(`{"id":"x","body":1}`), []string{`{"ok":true}`, "", `{"id":"x","body":1}`},
			func(in []byte) (string, int) { p, n := nextFrame(in); return string(p), n },
		},
		"gearman": {
			gear(gearCreated, "H:x:1") + gear(gearNoop, "") + gear(gearComplete, "H:x:1\x00body"), []string{"8 H:x:1", "6 ", "13 H:x:1\x00body"},
			func(in []byte) (string, int) {
				typ, args, n := nextPacket(in)
				return fmt.Sprintf("%d %s", typ, args), n
			},
		},
		"beanstalk": {
			"INSERTED 12\r\nRESERVED 7 5\r\nab\r\nc\r\nDELETED\r\nRESERVED 8 0\r\n\r\n",
			[]string{"INSERTED|12|", "RESERVED|7|ab\r\nc", "DELETED||", "RESERVED|8|"},
			func(in []byte) (string, int) {
				r, n := nextBeanReply(in)
				return fmt.Sprintf("%s|%s|%s", r.name, r.arg, r.data), n
			},
		},
		"redis": {
			"+PONG\r\n:42\r\n*2\r\n$5\r\nreply\r\n*1\r\n$4\r\na\r\nb\r\n-ERR no\r\n$0\r\n\r\n",
			[]string{"+0PONG", ":4242", "*22", "$5reply", "*11", "$4a\r\nb", "-0ERR no", "$0"},
			func(in []byte) (string, int) {
				reply, n := nextRESPItem(in)
				return fmt.Sprintf("%c%d%s", reply.kind, reply.n, reply.text), n
			},
		},
		"nats": {
			"INFO {\"a\":1}\r\nPONG\r\nMSG echo 1 reply.3 5\r\na\r\nbc\r\nMSG reply.3 1 0\r\n\r\nPING\r\n",
			[]string{`INFO {"a":1}|`, "PONG|", "MSG echo 1 reply.3 5|a\r\nbc", "MSG reply.3 1 0|", "PING|"},
			func(in []byte) (string, int) {
				line, payload, n := nextLine(in)
				return fmt.Sprintf("%s|%s", line, payload), n
			},
		},
	} {
		for cut := range len(c.stream) + 1 {
			var got []string
			var rest string
			for _, part := range []string{c.stream[:cut], c.stream[cut:]} {
				rest += part
				for {
					unit, used := c.next([]byte(rest))
					if used == 0 {
						break
					}
					got = append(got, unit)
					rest = rest[used:]
				}
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") || rest != "" {
				t.Fatalf("%s cut at %d: got %q and rest %q, want %q", name, cut, got, rest, c.want)
			}
		}
	}
}

func TestReplySubject(t *testing.T) {
	if got := replySubject([]byte("MSG echo 1 reply.3 100")); string(got) != "reply.3" {
		t.Errorf("got %q", got)
	}
}

func TestRedisCommand(t *testing.T) {
	if got, want := string(command("BLPOP", "echo", "0")), "*3\r\n$5\r\nBLPOP\r\n$4\r\necho\r\n$1\r\n0\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := string(pushHead("reply-1", 100)), "*3\r\n$5\r\nRPUSH\r\n$7\r\nreply-1\r\n$100\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
