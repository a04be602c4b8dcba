package main

import (
	"bufio"
	"os"
	"time"

	gloom "gloom/clients/go"
)

// maxProgress is the longest line of progress in bytes; longer ones are dropped.
const maxProgress = 64 << 10

// progressPipe carries the lines that a command writes to descriptor 3 to the clients that asked for
// progress.
type progressPipe struct {
	r, w *os.File
	done chan struct{}
}

func newProgressPipe(job *gloom.Job) (*progressPipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	n := &progressPipe{r: r, w: w, done: make(chan struct{})}
	go n.forward(job)
	return n, nil
}

func (p *progressPipe) forward(job *gloom.Job) {
	defer close(p.done)
	in := bufio.NewReaderSize(p.r, maxProgress)
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return
		}
		long := more
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		if long {
			continue
		}
		if body, err := toBody(line, formAuto); err == nil {
			_ = job.Progress(body) // an error: nobody waits for the job any more
		}
	}
}

// close ends the forwarding once the command's lines have been read. It waits at most a second for
// processes that outlive the command.
func (p *progressPipe) close() {
	p.w.Close()
	_ = p.r.SetReadDeadline(time.Now().Add(time.Second))
	<-p.done
	p.r.Close()
}
