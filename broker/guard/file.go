package guard

import (
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxFileBytes is the maximum size of a file of options, tokens, certificates or the like. A file
// without an end, such as /dev/zero, must not fill the memory of the machine.
const MaxFileBytes = 16 << 20

// ReadFile reads a file that a person writes for a program. It refuses a file of more than
// MaxFileBytes. Its errors are of type *fs.PathError.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) <= MaxFileBytes {
		return data, nil
	}
	size := fmt.Sprintf("more than %d", MaxFileBytes)
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > MaxFileBytes {
		size = fmt.Sprint(info.Size())
	}
	return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("the file has %s bytes; the limit is %d", size, MaxFileBytes)}
}

// LoadKeyPair reads a certificate and its key in PEM form with ReadFile.
func LoadKeyPair(cert, key string) (tls.Certificate, error) {
	certificate, err := ReadFile(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := ReadFile(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, private)
}
