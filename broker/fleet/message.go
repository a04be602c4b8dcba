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

// The stream from one broker to another carries items of these kinds.
const (
	itemOffer    = 'o' // fields: type, priority, age, jobs
	itemGrant    = 't' // fields: type, places (0 revokes unfilled ones) or grantNoWorkers
	itemLend     = 'l' // fields: borrower, loan, type, id, priority, age, whether progress is wanted, headers, body
	itemCancel   = 'u' // nobody waits for the run; fields: borrower, loan, whether the run is overdue
	itemFollow   = 'w' // fields: borrower, loan, whether progress of the run is wanted from now on
	itemResult   = 'r' // fields: borrower, keep, id, body
	itemProgress = 'p' // fields: borrower, id, body
	itemFail     = 'f' // fields: borrower, keep, id, how, delay, reason
	itemReturn   = 'g' // fields: borrower, keep, id, delay, whether a worker had got the job
)

// grantNoWorkers is sent instead of a number of places if no worker serves the type, although a
// pattern of the broker's wants may match it.
const grantNoWorkers = -1

// These values say how a run failed.
const (
	failPlain    = iota
	failLater    // the worker wants a retry after a delay
	failFinal    // the worker wants no retry
	failLost     // the worker of the run was lost; the retry may have to wait, as at the borrower
	failExpelled // the worker of the run was expelled
)

// writer appends to a message.
type writer []byte

func (w *writer) putUint(v uint64)   { *w = msgp.AppendUint64(*w, v) }
func (w *writer) putInt(v int64)     { *w = msgp.AppendInt64(*w, v) }
func (w *writer) putBool(v bool)     { *w = msgp.AppendBool(*w, v) }
func (w *writer) putBytes(v []byte)  { *w = msgp.AppendBytes(*w, v) }
func (w *writer) putString(v string) { *w = msgp.AppendString(*w, v) }
func (w *writer) putListHead(n int)  { *w = msgp.AppendArrayHeader(*w, uint32(n)) }
func (w *writer) putList(v [][]byte) {
	w.putListHead(len(v))
	for _, x := range v {
		w.putBytes(x)
	}
}

var errItemKind = errors.New("an item has an unknown kind")

// reader reads a message. After the first error it reads zeros.
type reader struct {
	unread []byte
	err    error
}

func readValue[T any](r *reader, f func([]byte) (T, []byte, error)) (v T) {
	if r.err != nil {
		return v
	}
	v, r.unread, r.err = f(r.unread)
	return v
}

func (r *reader) readUint() uint64   { return readValue(r, msgp.ReadUint64Bytes) }
func (r *reader) readInt() int64     { return readValue(r, msgp.ReadInt64Bytes) }
func (r *reader) readBool() bool     { return readValue(r, msgp.ReadBoolBytes) }
func (r *reader) readBytes() []byte  { return readValue(r, msgp.ReadBytesZC) }
func (r *reader) readString() string { return readValue(r, msgp.ReadStringBytes) }

// readName reads a type, an id or a group, in canonical form.
func (r *reader) readName() []byte {
	name := r.readBytes()
	if r.err == nil && !isCanonical(name) {
		r.err = errors.New("an invalid name")
	}
	return name
}

// isCanonical reports whether a name is within bounds and its escapes are complete.
func isCanonical(name []byte) bool {
	if len(name) > 6*wire.MaxNameBytes {
		return false
	}
	for i := 0; i < len(name); i++ {
		if name[i] != '\\' {
			continue
		}
		if i++; i == len(name) {
			return false
		}
		if name[i] == 'u' {
			i += 4
			if i >= len(name) {
				return false
			}
		}
	}
	return true
}

func (r *reader) readNames(limit int) (names [][]byte) {
	n := r.readListHead()
	if n > limit && r.err == nil {
		r.err = errors.New("too many names")
	}
	for range n {
		if r.err != nil {
			return nil
		}
		names = append(names, r.readName())
	}
	return names
}

// readListHead reads the length of a list. The list must fit in the rest of the message, with at least
// one byte for each element.
func (r *reader) readListHead() int {
	n := readValue(r, msgp.ReadArrayHeaderBytes)
	if r.err == nil && int(n) > len(r.unread) {
		r.err = errors.New("a list is longer than its message")
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}
