package broker

import (
	"fmt"
	"testing"
	"time"
)

// rateLimitedCore is a core that runs jobs under a rate of 1 per second with a burst of 10, set on a
// group or on a type.
type rateLimitedCore struct {
	*Broker
	submitter, worker Peer
	jobs              int
	out               []string
}

func newRateLimitedCore(t *testing.T, ofGroup bool) *rateLimitedCore {
	s := &rateLimitedCore{Broker: New(Config{})}
	s.submitter, s.worker = s.AddSubmitter(), s.AddWorker()
	var err *BadSetting
	if ofGroup {
		_, err = s.Configure(0, &Settings{Rules: []RuleInfo{{[]byte("g"), Rule{Concurrency: -1, Rate: 1, Burst: 10}}}})
	} else {
		_, err = s.Configure(0, &Settings{Types: []TypeSetting{{Name: []byte("t"), Limits: &TypeLimits{Rate: 1, Burst: 10}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.noteEffects(s.Join(0, s.worker, &JoinRequest{Type: []byte("t"), Prefetch: 10_000}))
	for range 1000 {
		s.jobs++
		q := &Submission{ID: fmt.Append(nil, s.jobs), Type: []byte("t"), Body: []byte("1"), Retries: -1}
		if ofGroup {
			q.Groups = [][]byte{[]byte("g")}
		}
		s.noteEffects(s.Submit(0, s.submitter, q))
	}
	return s
}

// noteEffects records which jobs were handed out and returns how many.
func (s *rateLimitedCore) noteEffects(effects []Effect) (n int) {
	for _, e := range effects {
		if e.Op == OpJob {
			s.out = append(s.out, string(e.ID))
			n++
		}
	}
	return n
}

// release releases the first n jobs that are out, and returns how many other jobs started.
func (s *rateLimitedCore) release(now int64, n int) (starts int) {
	for _, id := range append([]string(nil), s.out[:n]...) {
		s.out = s.out[1:]
		starts += s.noteEffects(s.Release(now, s.worker, &ReleaseRequest{ID: []byte(id), Delay: time.Hour}))
	}
	return starts
}

// TestReleasesKeepToRate: if a job is released late, time has already refilled its token; if
// it was handed out just now, the whole token comes back. In no case do more jobs start than
// the rate allows.
func TestReleasesKeepToRate(t *testing.T) {
	const second = int64(time.Second)
	for _, ofGroup := range []bool{true, false} {
		t.Run(fmt.Sprintf("group=%v", ofGroup), func(t *testing.T) {
			s := newRateLimitedCore(t, ofGroup)
			if len(s.out) != 10 {
				t.Fatalf("%d jobs started at once", len(s.out))
			}
			for at := second; at <= 100*second; at += second {
				s.noteEffects(s.Tick(at))
			}
			if len(s.out) != 110 {
				t.Fatalf("%d jobs started in 100 s", len(s.out))
			}
			// All jobs except the job that has just started are given back. 9 more jobs may start beside the
			// running job.
			if n := s.release(100*second, 109); n > 9 {
				t.Errorf("%d jobs started at once when 109 old ones were given back", n)
			}
			s = newRateLimitedCore(t, ofGroup)
			for round := range 50 {
				if n := s.release(0, 10); n != 10 {
					t.Fatalf("round %d: %d jobs started when 10 were given back at once", round, n)
				}
			}
			// The bucket has regained 3 of 10 tokens; releases may bring back the other 7.
			if n := s.noteEffects(s.Tick(3 * second)); n != 3 {
				t.Fatalf("%d jobs started in 3 s", n)
			}
			if n := s.release(3*second, 10); n != 7 {
				t.Errorf("%d jobs started when 10 were given back after 3 s", n)
			}
		})
	}
}
