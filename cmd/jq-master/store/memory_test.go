package store

import (
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
)

// TestKeysBounded: the oldest idempotency keys go when all have too many bytes.
func TestKeysBounded(t *testing.T) {
	m := NewMemory()
	enqueue := func(name string) (again bool) {
		m.Enqueue([]*job.Job{{ID: job.NewID()}}, &Key{Name: name, TTL: time.Hour}, func(_ []job.ID, replayed bool, err error) {
			if err != nil {
				t.Fatal(err)
			}
			again = replayed
		})
		return again
	}
	enqueue("a")
	enqueue("b")
	one := m.texts / 2
	m.texts += memoryTexts - one // as if there were many more
	if enqueue("c"); m.texts > memoryTexts || len(m.order) != len(m.keys) {
		t.Fatalf("%d bytes, %d keys in an order of %d", m.texts, len(m.keys), len(m.order))
	}
	if enqueue("b") {
		t.Error("more is remembered than may be")
	}
}
