package fleet

import (
	"errors"

	"github.com/tinylib/msgp/msgp"

	"gloom/wire"
)

// A message is version, kind, the sender's name and epoch, and the fields of its kind,
// all in MessagePack without keys. The first four fields are the same in all versions. A
// change to any of the others needs a new version.
const (
	version = 4

	msgHeartbeat = 'b' // to all: says that the sender is alive, and which brokers it hears
	msgWants     = 'w' // to all: says what the sender's idle workers would do
	msgData      = 'd' // to one: items
	msgAck       = 'a' // to one: says which messages have arrived, and which are missing
)

// headerBytes is roughly the size of a message without its items, in bytes.
const headerBytes = 256

// Items are what the stream from one broker to another carries.
const (
	itemOffer    = 'o' // fields: type, priority, age, jobs
	itemGrant    = 't' // fields: type, places (0 revokes unfilled ones) or noneHere
	itemLend     = 'l' // fields: borrower, loan, type, id, priority, age, whether progress is wanted, headers, body
	itemUnwant   = 'u' // fields: borrower, loan, whether the run is overdue
	itemFollow   = 'w' // fields: borrower, loan, whether progress is wanted
	itemResult   = 'r' // fields: borrower, keep, id, body
	itemProgress = 'p' // fields: borrower, id, body
	itemFail     = 'f' // fields: borrower, keep, id, how, delay, reason
	itemReturn   = 'g' // fields: borrower, keep, id, delay, whether a worker had got the job
)

// noneHere is sent instead of a number of places if no worker serves the type, although a pattern
// of the broker's wants may match it.
const noneHere = -1

// How a run failed.
const (
	failPlain = iota
	failLater // the worker wants a retry after a delay
	failFinal // the worker wants no retry
	failLost  // the worker of the run was lost
	failExpelled
)

// writer appends to a message.
type writer []byte

func (p *writer) uint(v uint64)  { *p = msgp.AppendUint64(*p, v) }
func (p *writer) int(v int64)    { *p = msgp.AppendInt64(*p, v) }
func (p *writer) bool(v bool)    { *p = msgp.AppendBool(*p, v) }
func (p *writer) bytes(v []byte) { *p = msgp.AppendBytes(*p, v) }
func (p *writer) str(v string)   { *p = msgp.AppendString(*p, v) }
func (p *writer) listHead(n int) { *p = msgp.AppendArrayHeader(*p, uint32(n)) }
func (p *writer) list(v [][]byte) {
	p.listHead(len(v))
	for _, x := range v {
		p.bytes(x)
	}
}

var errItemKind = errors.New("an item has an unknown kind")

// reader reads a message. After the first error it reads zeros.
type reader struct {
	rest []byte
	err  error
}

func read[T any](s *reader, f func([]byte) (T, []byte, error)) (v T) {
	if s.err != nil {
		return v
	}
	v, s.rest, s.err = f(s.rest)
	return v
}

func (s *reader) uint() uint64  { return read(s, msgp.ReadUint64Bytes) }
func (s *reader) int() int64    { return read(s, msgp.ReadInt64Bytes) }
func (s *reader) bool() bool    { return read(s, msgp.ReadBoolBytes) }
func (s *reader) bytes() []byte { return read(s, msgp.ReadBytesZC) }
func (s *reader) str() string   { return read(s, msgp.ReadStringBytes) }

// name reads a type, an id or a group, in canonical form.
func (s *reader) name() []byte {
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

func (s *reader) names(limit int) (v [][]byte) {
	n := s.listHead()
	if n > limit && s.err == nil {
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

// listHead reads the length of a list. The list must fit in the rest of the message, with at least
// one byte for each element.
func (s *reader) listHead() int {
	n := read(s, msgp.ReadArrayHeaderBytes)
	if s.err == nil && int(n) > len(s.rest) {
		s.err = errors.New("a list is longer than its message")
	}
	if s.err != nil {
		return 0
	}
	return int(n)
}
