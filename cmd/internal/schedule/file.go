package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"gloom/broker/guard"
)

// Key names a schedule.
type Key struct{ Client, Name string } // Client is "" for doors without clients

func (k Key) String() string { return strings.Trim(k.Client+"."+k.Name, ".") }

// File is a TOML file of schedules: tables [schedules.NAME], or [schedules.CLIENT.NAME].
type File struct {
	path       string
	hasClients bool
	checkJob   func(Key, json.RawMessage) error
	changed    chan struct{}

	mu    sync.Mutex
	specs map[Key]Spec
}

// OpenFile reads a file; checkJob validates the job of a schedule, and the client. Changed receives a
// first value for this reading.
func OpenFile(path string, clients bool, check func(Key, json.RawMessage) error) (*File, error) {
	f := &File{path: path, hasClients: clients, checkJob: check, changed: make(chan struct{}, 1)}
	var err error
	f.specs, err = f.read()
	f.changed <- struct{}{}
	return f, err
}

// All returns the schedules of the file.
func (f *File) All() map[Key]Spec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.specs
}

// Changed returns a channel that receives a value whenever the file has been read.
func (f *File) Changed() <-chan struct{} { return f.changed }

// Reload reads the file again; without a path there is nothing to read. After an error,
// which names the field, everything stays as it was.
func (f *File) Reload() error {
	if f == nil {
		return nil
	}
	specs, err := f.read()
	if err != nil {
		return fmt.Errorf("the schedules of %s: %w", f.path, err)
	}
	f.mu.Lock()
	f.specs = specs
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

func (f *File) read() (map[Key]Spec, error) {
	if info, err := os.Stat(f.path); err == nil && info.Mode()&os.ModeNamedPipe != 0 { // opening it may wait for ever
		return nil, errors.New("it is a pipe, which cannot be read again")
	}
	data, err := guard.ReadFile(f.path)
	var path *os.PathError
	if errors.As(err, &path) {
		return nil, path.Err
	}
	var document map[string]any
	if err := toml.Unmarshal(data, &document); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, _ := at.Position()
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		return nil, err
	}
	specs := make(map[Key]Spec)
	for name, value := range document {
		if name != "schedules" {
			return nil, fmt.Errorf("the file has the unknown key %.60q; it may have tables %s", name, f.tableForm())
		}
		if err := f.readTables(specs, Key{}, f.hasClients, value); err != nil {
			return nil, err
		}
	}
	counts := make(map[string]int)
	for key := range specs {
		if counts[key.Client]++; counts[key.Client] > MaxSchedules {
			return nil, fmt.Errorf("there are more than %d schedules%s", MaxSchedules, clientSuffix(key.Client))
		}
	}
	return specs, nil
}

func clientSuffix(client string) string {
	if client == "" {
		return ""
	}
	return " of the client " + client
}

func (f *File) tableForm() string {
	if f.hasClients {
		return "[schedules.CLIENT.NAME]"
	}
	return "[schedules.NAME]"
}

// readTables parses the tables below a key: clients, or schedules.
func (f *File) readTables(to map[Key]Spec, key Key, clients bool, value any) error {
	subtable, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("schedules.%s must be a section %s", key, f.tableForm())
	}
	for name, value := range subtable {
		key := key
		if clients {
			key.Client = name
			if err := f.readTables(to, key, false, value); err != nil {
				return err
			}
			continue
		}
		key.Name = name
		if _, ok := value.(map[string]any); !ok {
			return fmt.Errorf("schedules.%s must be a section %s", key, f.tableForm())
		}
		err := CheckName(name)
		if err == nil {
			to[key], err = f.readSpec(key, value)
		}
		if err != nil {
			return fmt.Errorf("schedules.%s: %w", key, err)
		}
	}
	return nil
}

func (f *File) readSpec(key Key, value any) (Spec, error) {
	text, err := json.Marshal(value)
	if err != nil { // inf, nan
		return Spec{}, err
	}
	return Parse(text, func(job json.RawMessage) error { return f.checkJob(key, job) })
}
