package container

import "testing"

// TestBuffersAreReusedAndCounted: memory from Get has room, memory from Put is reused while it
// fits, and all that is kept is counted.
func TestBuffersAreReusedAndCounted(t *testing.T) {
	x := &Buffers{MaxBytes: 2 * MaxBuffer}
	for _, n := range []int{0, 1, minBuffer, minBuffer + 1, 5000, MaxBuffer - 1, MaxBuffer, MaxBuffer + 1} {
		b := x.Get(n)
		if len(b) != 0 || cap(b) < n {
			t.Fatalf("Get(%d) has length %d, room %d", n, len(b), cap(b))
		}
		x.Put(b)
		if kept := n <= MaxBuffer; kept != (x.HeldBytes == cap(b)) {
			t.Fatalf("%d bytes are held after a buffer of %d", x.HeldBytes, cap(b))
		}
		if nextBuffer := x.Get(n); n <= MaxBuffer && &nextBuffer[:1][0] != &b[:1][0] || x.HeldBytes != 0 {
			t.Fatalf("Get(%d) did not find what was put; %d bytes are held", n, x.HeldBytes)
		}
	}
	// Memory whose capacity is not a power of two is reused for the next smaller size.
	odd := make([]byte, 0, 3*minBuffer)
	x.Put(odd)
	if b := x.Get(2 * minBuffer); cap(b) != cap(odd) {
		t.Errorf("an odd buffer was not used again")
	}
	for range 5 {
		x.Put(make([]byte, 0, MaxBuffer))
	}
	if x.Put(make([]byte, 0, minBuffer-1)); x.HeldBytes != x.MaxBytes {
		t.Errorf("%d bytes are held, want %d", x.HeldBytes, x.MaxBytes)
	}
	if x.Trim(); x.HeldBytes != MaxBuffer {
		t.Errorf("%d bytes are held after a trim, want %d", x.HeldBytes, MaxBuffer)
	}
	var nilBuffers *Buffers
	nilBuffers.Put(nilBuffers.Get(5000))
	if nilBuffers.Trim(); cap(nilBuffers.Get(7)) != 7 {
		t.Errorf("no buffers gave more than was asked for")
	}
}
