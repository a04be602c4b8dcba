package master

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	gloom "gloom/clients/go"
)

// TestFlushOfClosedConnection: a connection that is closed before it has reached the broker answers
// every flush, because a request of an operator waits for the answer.
func TestFlushOfClosedConnection(t *testing.T) {
	b := Broker{Submitter: []gloom.Option{gloom.Addrs("127.0.0.1:1")}, Close: func() {}}
	c, err := openBrokerConn(b, "jq~", 1, func(func(*machine)) {}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan bool, 3)
	flush := func() { c.flush(func(reached bool) { answers <- reached }) }
	flush()
	for len(c.queueOf()) > 0 { // the first flush waits for the broker, the second behind it
		time.Sleep(time.Millisecond)
	}
	flush()
	c.close()
	flush()
	for range cap(answers) {
		select {
		case reached := <-answers:
			if reached {
				t.Error("a flush says that it has reached the broker")
			}
		case <-time.After(45 * time.Second):
			t.Fatal("a flush is not answered")
		}
	}
}

func (c *brokerConn) queueOf() []brokerRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue
}
