package job

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

// ID is the id of a job: nine characters for the milliseconds since 1970, six for the sysid of the
// daemon that accepted it, and five for a sequence number, with hyphens between them. Ids sort in
// the order of acceptance.
type ID string

const (
	digits   = "0123456789abcdefghjkmnpqrstvwxyz" // the digits of base 32; they sort by value
	timeLen  = 9
	sysidLen = 6
	seqLen   = 5
	// IDLen is the length of an id.
	IDLen  = timeLen + 1 + sysidLen + 1 + seqLen
	maxSeq = 1<<(5*seqLen) - 1
	maxMS  = 1<<(5*timeLen) - 1
)

// ErrInvalidID is the error for a text that is not an id.
var ErrInvalidID = errors.New("not an id: 9, 6 and 5 characters of base 32 with hyphens between")

// ParseID returns s as an ID if it is valid.
func ParseID(s string) (ID, error) {
	if _, _, _, err := ID(s).parts(); err != nil {
		return "", err
	}
	return ID(s), nil
}

func (id ID) parts() (ms int64, sysid string, seq int64, err error) {
	s := string(id)
	if len(s) != IDLen || s[timeLen] != '-' || s[timeLen+1+sysidLen] != '-' {
		return 0, "", 0, ErrInvalidID
	}
	ms, ok := parseDigits(s[:timeLen])
	sysid = s[timeLen+1 : timeLen+1+sysidLen]
	_, ok2 := parseDigits(sysid)
	seq, ok3 := parseDigits(s[IDLen-seqLen:])
	if !ok || !ok2 || !ok3 {
		return 0, "", 0, ErrInvalidID
	}
	return ms, sysid, seq, nil
}

// Add returns the id n places after id.
func (id ID) Add(n int) ID {
	ms, sysid, seq, err := id.parts()
	if n == 0 || err != nil {
		return id
	}
	seq += int64(n)
	return makeID(ms+seq>>(5*seqLen), sysid, seq&maxSeq)
}

// OffsetFrom returns n if id is first.Add(n). ok is false if first.Add cannot return id.
func (id ID) OffsetFrom(first ID) (n int, ok bool) {
	ms, sysid, seq, err := id.parts()
	firstMS, firstSysid, firstSeq, err0 := first.parts()
	if err != nil || err0 != nil || sysid != firstSysid || ms < firstMS || ms-firstMS > 1<<20 {
		return 0, false
	}
	d := (ms-firstMS)<<(5*seqLen) + seq - firstSeq
	return int(d), d >= 0
}

func makeID(ms int64, sysid string, seq int64) ID {
	var b [IDLen]byte
	putDigits(b[:timeLen], ms)
	b[timeLen] = '-'
	copy(b[timeLen+1:], sysid)
	b[timeLen+1+sysidLen] = '-'
	putDigits(b[IDLen-seqLen:], seq)
	return ID(b[:])
}

func putDigits(to []byte, n int64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = digits[n&31]
		n >>= 5
	}
}

func parseDigits(s string) (n int64, ok bool) {
	for i := range len(s) {
		d := digitValues[s[i]]
		if d < 0 {
			return 0, false
		}
		n = n<<5 | int64(d)
	}
	return n, true
}

var digitValues = func() (v [256]int8) {
	for i := range v {
		v[i] = -1
	}
	for i := range len(digits) {
		v[digits[i]] = int8(i)
	}
	return v
}()

// NewSysid returns six random characters of base 32.
func NewSysid() string {
	var b [sysidLen]byte
	_, _ = rand.Read(b[:])
	for i := range b {
		b[i] = digits[b[i]&31]
	}
	return string(b[:])
}

// IDSource is a source of ids. It is safe for concurrent use.
type IDSource struct {
	mu    sync.Mutex
	sysid string
	now   func() time.Time
	ms    int64 // time of the last id, in milliseconds since 1970
	seq   int64
}

// NewIDSource returns a source of ids with this sysid. now is its clock.
func NewIDSource(sysid string, now func() time.Time) *IDSource {
	return &IDSource{sysid: sysid, now: now}
}

// Next returns the first of n new ids. They are greater than all earlier ids. The others are what
// the first one's Add returns.
func (s *IDSource) Next(n int) ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ms := min(s.now().UnixMilli(), maxMS); ms > s.ms {
		s.ms, s.seq = ms, 0
	}
	first := makeID(s.ms, s.sysid, s.seq)
	s.seq += int64(n)
	s.ms, s.seq = s.ms+s.seq>>(5*seqLen), s.seq&maxSeq
	return first
}

// RaiseAbove makes all later ids greater than last, which an earlier daemon may have used.
func (s *IDSource) RaiseAbove(last ID) {
	ms, _, seq, err := last.parts()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && (ms > s.ms || ms == s.ms && seq >= s.seq) {
		// The sysid may sort before the last id's sysid, so the next id needs a later millisecond.
		s.ms, s.seq = ms+1, 0
	}
}

// Sysid returns the sysid of the next ids.
func (s *IDSource) Sysid() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sysid
}

// SetSysid changes the sysid of later ids.
func (s *IDSource) SetSysid(sysid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sysid != s.sysid {
		s.sysid, s.ms, s.seq = sysid, s.ms+1, 0
	}
}

func (id ID) String() string { return string(id) }
