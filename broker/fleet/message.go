package fleet

import (
	"errors"

	"github.com/tinylib/msgp/msgp"

	"gloom/wire"
)

// A message is version, kind, the sender's name and epoch, and the fields of its kind,
// all in MessagePack without keys. The first four fields are the same in all versions. Any
// change of the others changes the version.
const (
	version = 4

	msgBeat  = 'b' // to all: the sender is alive, and which brokers it hears
	msgWants = 'w' // to all: what its idle workers would do
	msgData  = 'd' // to one: items
	msgAck   = 'a' // to one: which messages have arrived, and which are missing
)

// headRoom is roughly the size of a message without its items, in bytes.
const headRoom = 256

// Items are what the stream from one broker to another carries.
const (
	itemOffer    = 'o' // type, priority, age, jobs
	itemTake     = 't' // type, places (0 makes unfilled ones void) or noneHere
	itemLend     = 'l' // line, loan, type, id, priority, age, whether progress is wanted, headers, body
	itemUnwant   = 'u' // line, loan, whether it is overdue
	itemFollow   = 'w' // line, loan, whether progress is wanted
	itemResult   = 'r' // line, keep, id, body
	itemProgress = 'p' // line, id, body
	itemFail     = 'f' // line, keep, id, how, delay, reason
	itemReturn   = 'g' // line, keep, id, delay, whether a worker had it
)

// noneHere, in place of a number of places, means that no worker serves the type, even if a
// pattern of the broker's wants matches it.
const noneHere = -1

// How a run failed.
const (
	failPlain = iota
	failLater // retry after delay
	failFinal // no retry
	failLost  // its worker was lost
	failExpelled
)

// pack appends to a message.
type pack []byte

func (p *pack) uint(v uint64)  { *p = msgp.AppendUint64(*p, v) }
func (p *pack) int(v int64)    { *p = msgp.AppendInt64(*p, v) }
func (p *pack) bool(v bool)    { *p = msgp.AppendBool(*p, v) }
func (p *pack) bytes(v []byte) { *p = msgp.AppendBytes(*p, v) }
func (p *pack) str(v string)   { *p = msgp.AppendString(*p, v) }
func (p *pack) head(n int)     { *p = msgp.AppendArrayHeader(*p, uint32(n)) }
func (p *pack) list(v [][]byte) {
	p.head(len(v))
	for _, x := range v {
		p.bytes(x)
	}
}

var errItem = errors.New("an item has an unknown kind")

// scan reads a message. After the first error it reads zeros.
type scan struct {
	rest []byte
	err  error
}

func read[T any](s *scan, f func([]byte) (T, []byte, error)) (v T) {
	if s.err != nil {
		return v
	}
	v, s.rest, s.err = f(s.rest)
	return v
}

func (s *scan) uint() uint64  { return read(s, msgp.ReadUint64Bytes) }
func (s *scan) int() int64    { return read(s, msgp.ReadInt64Bytes) }
func (s *scan) bool() bool    { return read(s, msgp.ReadBoolBytes) }
func (s *scan) bytes() []byte { return read(s, msgp.ReadBytesZC) }
func (s *scan) str() string   { return read(s, msgp.ReadStringBytes) }

// name reads a type, an id or a group, in canonical form.
func (s *scan) name() []byte {
	v := s.bytes()
	if s.err == nil && !canonical(v) {
		s.err = errors.New("an invalid name")
	}
	return v
}

// canonical reports whether a name is within bounds and its escapes are complete.
func canonical(v []byte) bool {
	if len(v) > 6*wire.MaxName {
		return false
	}
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' {
			continue
		}
		if i++; i == len(v) {
			return false
		}
		if v[i] == 'u' {
			if i += 4; i >= len(v) {
				return false
			}
		}
	}
	return true
}

func (s *scan) names(most int) (v [][]byte) {
	n := s.head()
	if n > most && s.err == nil {
		s.err = errors.New("too many names")
	}
	for range n {
		if s.err != nil {
			return nil
		}
		v = append(v, s.name())
	}
	return v
}

// head reads the length of a list. The list must fit in the rest of the message, with at least
// one byte for each element.
func (s *scan) head() int {
	n := read(s, msgp.ReadArrayHeaderBytes)
	if s.err == nil && int(n) > len(s.rest) {
		s.err = errors.New("a list is longer than its message")
	}
	if s.err != nil {
		return 0
	}
	return int(n)
}
