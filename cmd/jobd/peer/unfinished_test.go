package peer

import (
	"testing"
	"testing/synctest"
)

// TestReadersWaitForFreedMemory: the bytes that a closing connection still holds count. Other
// connections do not continue to read until the closing connection has freed its bytes.
func TestReadersWaitForFreedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnfinished(100)
		hoarder, other := &Conn{}, &Conn{}
		u.findHoarders(hoarder, 80)
		if got := u.findHoarders(other, 60); len(got) != 1 || got[0] != hoarder {
			t.Fatalf("closed: %v", got)
		}
		waits := true
		go func() {
			u.update(other, 60)
			waits = false
		}()
		synctest.Wait()
		if !waits {
			t.Error("140 bytes are held of 100, and a connection reads on")
		}
		u.update(hoarder, 70) // a connection that is being closed does not wait
		u.update(hoarder, 0)
		synctest.Wait()
		if waits {
			t.Error("60 bytes are held of 100, and a connection waits")
		}
		if u.totalBytes != 60 || u.closingBytes != 0 || len(u.byConn) != 1 {
			t.Errorf("%d bytes of %d connections, %d of them closing", u.totalBytes, len(u.byConn), u.closingBytes)
		}
	})
}
