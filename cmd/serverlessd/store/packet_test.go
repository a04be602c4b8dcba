package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/journal"
)

// TestSmallPackets: statements that are sent together fit into the server's packets.
func TestSmallPackets(t *testing.T) {
	for _, p := range []string{"256K", "512K", "1M", "16M"} {
		t.Run(p, func(t *testing.T) {
			server := mariadbtest.New(t, "--max-allowed-packet="+p)
			s := openStore(t, address(t, server))
			var list []journal.Entry
			for i := range 40 {
				list = append(list, entry("a-x", fmt.Sprint(i)+strings.Repeat("'", 20_000)))
			}
			for i := range list {
				list[i].End = 1
			}
			_, err := s.Ingest(t.Context(), journal.Range{Segment: "p", To: 1}, list, time.Now)
			if err != nil {
				t.Errorf("together: %v", err)
			}
			for i, e := range list[:3] {
				if _, err := s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprint("q", i), To: 1}, []journal.Entry{e}, time.Now); err != nil {
					t.Errorf("alone: %v", err)
				}
			}
		})
	}
}

// TestPacketLimitRaised: the limit of a server's packets is raised while older connections, which
// keep the old limit, stay open. Statements that are sent together fit into the packets of all
// connections.
func TestPacketLimitRaised(t *testing.T) {
	server := mariadbtest.New(t, "--max-allowed-packet=256K")
	s := openStore(t, address(t, server))
	put := func(segment string) error {
		var list []journal.Entry
		for i := range 20 {
			e := entry("a-x", fmt.Sprint(i)+strings.Repeat("'", 20_000))
			e.End = 1
			list = append(list, e)
		}
		_, err := s.Ingest(t.Context(), journal.Range{Segment: segment, To: 1}, list, time.Now)
		return err
	}
	if err := put("before"); err != nil {
		t.Fatal(err)
	}
	db, err := server.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("SET GLOBAL max_allowed_packet = 16 << 20"); err != nil {
		t.Fatal(err)
	}
	// Make several calls at a time, so that new connections are opened beside the old one.
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 2 {
				if err := put(fmt.Sprint("after", i, k)); err != nil {
					t.Errorf("after: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// TestServerChoosesCharset: a server that ignores the charset of its clients stores payloads with
// bytes of any kind, although a backslash may be half of a character in the server's own charset.
func TestServerChoosesCharset(t *testing.T) {
	server := mariadbtest.New(t, "--skip-character-set-client-handshake", "--character-set-server=gbk")
	s := openStore(t, address(t, server))
	e := entry("a-x", "\xbf'\xbf\\")
	e.End = 1
	if _, err := s.Ingest(t.Context(), journal.Range{Segment: "p", To: 1}, []journal.Entry{e}, time.Now); err != nil {
		t.Error(err)
	}
}
