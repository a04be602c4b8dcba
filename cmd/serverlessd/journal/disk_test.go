package journal_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	. "gloom/cmd/serverlessd/journal"
)

var errPowerLost = errors.New("no power")

// disk is a directory that loses unsynced data in a power loss, and fails when the test tells it
// to.
type disk struct {
	mu      sync.Mutex
	names   map[string]*inode // the files as programs see them
	durable map[string]*inode // the files as they are after a loss of power
	// fail is called with the name of each change before it is made: create, write, truncate, sync,
	// names or remove. An error makes the change fail; only half of a failing write is made.
	fail func(op, name string) error
	// unreadable is called before each read; an error makes the read fail.
	unreadable func(from, to int64) bool

	free       int // bytes; 0: no limit
	poweredOff bool
	syncs      int
	lastErr    error // the error of the last change that was not a removal
}

type inode struct{ data, synced []byte }

func newDisk() *disk {
	return &disk{names: make(map[string]*inode), durable: make(map[string]*inode)}
}

// restart returns the directory as the next start sees it: after a power loss, or after only the
// program has died.
func (d *disk) restart(powerLost bool, r *rand.Rand) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.poweredOff = true
	n := newDisk()
	n.free = d.free
	if !powerLost {
		n.names, n.durable = maps.Clone(d.names), maps.Clone(d.durable)
		for name, i := range n.names {
			c := &inode{slices.Clone(i.data), slices.Clone(i.synced)}
			if n.durable[name] == i {
				n.durable[name] = c
			}
			n.names[name] = c
		}
		return n
	}
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if d.durable[name] == nil && r.IntN(2) == 0 { // the name may have reached the disk without a sync
			d.durable[name] = d.names[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.durable)) {
		if d.names[name] == nil && r.IntN(2) == 0 { // a removal too
			continue
		}
		data := d.durable[name].afterCrash(r)
		n.names[name] = &inode{data, slices.Clone(data)}
		n.durable[name] = n.names[name]
	}
	return n
}

// afterCrash returns the content of a file after a power loss: all synced bytes, and a random
// selection of the other sectors.
func (i *inode) afterCrash(r *rand.Rand) []byte {
	switch r.IntN(3) {
	case 0:
		return slices.Clone(i.synced)
	case 1:
		return slices.Clone(i.data)
	}
	const sector = 64
	data := slices.Clone(i.synced)
	if len(i.data) > len(data) {
		data = append(data, make([]byte, r.IntN(len(i.data)-len(data)+1))...)
	}
	for at := 0; at < min(len(data), len(i.data)); at += sector {
		if r.IntN(2) == 0 {
			copy(data[at:min(at+sector, len(data))], i.data[at:])
		}
	}
	return data
}

func (d *disk) do(op, name string) (err error) {
	if d.poweredOff {
		err = errPowerLost
	} else if d.fail != nil {
		err = d.fail(op, name)
	}
	if op != "remove" {
		d.lastErr = err
	}
	return err
}

func (d *disk) used() (n int) {
	for _, i := range d.names {
		n += len(i.data)
	}
	return n
}

func (d *disk) List() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.names)), nil
}

func (d *disk) Create(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do("create", name); err != nil {
		return nil, err
	}
	if d.names[name] != nil {
		return nil, fmt.Errorf("%s: %w", name, os.ErrExist)
	}
	d.names[name] = &inode{}
	return &handle{d, d.names[name], name}, nil
}

func (d *disk) Open(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] == nil {
		return nil, os.ErrNotExist
	}
	return &handle{d, d.names[name], name}, nil
}

func (d *disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do("remove", name); err != nil {
		return err
	}
	delete(d.names, name)
	return nil
}

func (d *disk) Space() (size, free int64, err error) { return 1 << 40, 1 << 36, nil }

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.do("names", ""); err != nil {
		return err
	}
	d.durable = maps.Clone(d.names)
	return nil
}

func (d *disk) Close() error { return nil }

// badFiles returns the names of the files that were set aside.
func (d *disk) badFiles() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.names {
		if strings.HasSuffix(name, ".bad") {
			names = append(names, name)
		}
	}
	return names
}

type handle struct {
	d    *disk
	i    *inode
	name string
}

func (h *handle) ReadAt(p []byte, at int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.unreadable != nil && h.d.unreadable(at, at+int64(len(p))) {
		return 0, syscall.EIO
	}
	if at >= int64(len(h.i.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.i.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, at int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	err := h.d.do("write", h.name)
	if room := h.d.free - h.d.used(); err == nil && h.d.free > 0 && len(p) > room {
		p, err = p[:max(0, room)], syscall.ENOSPC
	} else if err != nil {
		p = p[:len(p)/2]
	}
	if missing := int(at) + len(p) - len(h.i.data); missing > 0 {
		h.i.data = append(h.i.data, make([]byte, missing)...)
	}
	return copy(h.i.data[at:], p), err
}

func (h *handle) Truncate(size int64) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.do("truncate", h.name); err != nil {
		return err
	}
	h.i.data = h.i.data[:size:size]
	return nil
}

func (h *handle) Size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return int64(len(h.i.data)), nil
}

func (h *handle) Sync() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.do("sync", h.name); err != nil {
		return err
	}
	h.d.syncs++
	h.i.synced = slices.Clone(h.i.data)
	return nil
}

func (h *handle) Close() error { return nil }
