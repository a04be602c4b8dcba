package broker_test

import (
	"fmt"
	"testing"

	"gloom/broker"
)

// TestGroupHoldsBackManyTypes: a group holds back jobs in more types than one command may look at. The command
// may reach its bound between choosing a type and handing out its job.
func TestGroupHoldsBackManyTypes(t *testing.T) {
	if broker.InvariantsEnabled {
		t.Skip("the sweeps make a command with so many types take long")
	}
	const types = 10_000
	for _, fair := range []bool{true, false} {
		b := broker.New(broker.Config{MaxTypes: types, MaxGroups: 10})
		if _, _, err := b.SetRule(0, []byte(`"g"`), broker.Rule{Concurrency: 1}); err != nil {
			t.Fatal(err)
		}
		s, w := b.AddSubmitter(), b.AddWorker()
		for i := range types {
			name := fmt.Appendf(nil, `"%d"`, i)
			if _, err := b.SetFair(0, name, fair); err != nil {
				t.Fatal(err)
			}
			b.Submit(0, s, &broker.Submission{ID: name, Type: name, Body: []byte("1"), Groups: [][]byte{[]byte(`"g"`)}})
		}
		fx := b.Join(0, w, &broker.JoinRequest{Types: [][]byte{[]byte(`"*"`)}, Prefetch: 1})
		done := 0
		for n := 0; done < 10 && n < 3000; n++ {
			var id []byte
			for _, e := range fx {
				if e.Op == broker.OpJob {
					id = append(id, e.ID...)
				}
			}
			if id == nil {
				fx = b.Tick(int64(n))
				continue
			}
			done++
			fx = b.Respond(int64(n), w, id, []byte("1"), false)
		}
		if done < 10 {
			t.Errorf("fair %t: %d jobs came, want 10", fair, done)
		}
	}
}
