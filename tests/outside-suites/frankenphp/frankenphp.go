// Package frankenphp has the names that FrankenPHP's own tests use, with a Howdah behind them: Init
// and the first request say how it is configured, ServeHTTP sends it the request. It replaces the
// package of that name in a copy of the suite; nothing of FrankenPHP is in it.
package frankenphp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type worker struct {
	script string
	number int
	env    map[string]string
	watch  []string
}

type settings struct {
	workers     []worker
	ini         map[string]string
	threads     int
	maxRequests int
	logger      *slog.Logger
	root        string
	env         map[string]string
}

// Option is what Init takes.
type Option func(*settings)

// WorkerOption is what WithWorkers takes.
type WorkerOption func(*worker)

// RequestOption is what NewRequestWithContext takes.
type RequestOption func(*request)

// PreparedEnv is what PrepareEnv makes.
type PreparedEnv map[string]string

// ErrRejected says that a request was refused: Howdah answers those itself.
type ErrRejected struct{}

func (ErrRejected) Error() string { return "rejected" }

// PHPVersion is the version of the php in PATH, whose series Howdah is linked with.
type PHPVersion struct {
	MajorVersion, MinorVersion, ReleaseVersion, VersionID int
	ExtraVersion, Version                                 string
}

type request struct {
	root string
	env  map[string]string
}

type requestKey struct{}

var (
	lock    sync.Mutex
	wanted  settings
	running *server
)

func WithLogger(l *slog.Logger) Option               { return func(s *settings) { s.logger = l } }
func WithNumThreads(n int) Option                    { return func(s *settings) { s.threads = n } }
func WithMaxRequests(n int) Option                   { return func(s *settings) { s.maxRequests = n } }
func WithPhpIni(ini map[string]string) Option        { return func(s *settings) { s.ini = ini } }
func WithWorkerEnv(e map[string]string) WorkerOption { return func(w *worker) { w.env = e } }
func WithWorkerWatchMode(p []string) WorkerOption    { return func(w *worker) { w.watch = p } }
func WithWorkerMaxFailures(int) WorkerOption         { return func(*worker) {} }
func PrepareEnv(e map[string]string) PreparedEnv     { return e }

func WithWorkers(_ string, script string, number int, options ...WorkerOption) Option {
	return func(s *settings) {
		w := worker{script: absolute(script), number: number}
		for _, option := range options {
			option(&w)
		}
		s.workers = append(s.workers, w)
	}
}

func WithRequestDocumentRoot(root string, _ bool) RequestOption {
	return func(r *request) { r.root = absolute(root) }
}

func WithRequestEnv(e map[string]string) RequestOption {
	return func(r *request) { r.env = e }
}

func WithRequestPreparedEnv(e PreparedEnv) RequestOption { return WithRequestEnv(e) }

// Init starts Howdah if there are workers, since their start may fail; else the first request does.
func Init(options ...Option) error {
	lock.Lock()
	defer lock.Unlock()
	wanted = settings{threads: 4, root: absolute("testdata")}
	for _, option := range options {
		option(&wanted)
	}
	if len(wanted.workers) == 0 {
		return nil
	}
	return ensure()
}

// Shutdown stops it.
func Shutdown() {
	lock.Lock()
	defer lock.Unlock()
	if running != nil {
		running.stop()
		running = nil
	}
}

// Version asks php.
func Version() PHPVersion {
	out, _ := exec.Command("php", "-r", "echo PHP_VERSION;").Output()
	v := PHPVersion{Version: string(out)}
	_, _ = fmt.Sscanf(v.Version, "%d.%d.%d", &v.MajorVersion, &v.MinorVersion, &v.ReleaseVersion)
	v.VersionID = v.MajorVersion*10000 + v.MinorVersion*100 + v.ReleaseVersion
	return v
}

func NewRequestWithContext(r *http.Request, options ...RequestOption) (*http.Request, error) {
	asked := &request{root: absolute("testdata")}
	for _, option := range options {
		option(asked)
	}
	return r.WithContext(context.WithValue(r.Context(), requestKey{}, asked)), nil
}

// ServeHTTP sends the request as it is, and passes on what comes back as it comes.
func ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	asked, ok := r.Context().Value(requestKey{}).(*request)
	if !ok {
		return errors.New("not a request of NewRequestWithContext")
	}
	lock.Lock()
	wanted.root, wanted.env = asked.root, asked.env
	err := ensure()
	howdah := running
	lock.Unlock()
	if err != nil {
		return err
	}
	return howdah.exchange(w, r)
}

func absolute(path string) string {
	path, _ = filepath.Abs(path)
	return path
}

type server struct {
	settings
	directory, address string
	process            *exec.Cmd
	ended              chan struct{}
	logged             int64
	logLock            sync.Mutex
}

// ensure makes running serve what is wanted.
func ensure() error {
	if running != nil {
		if running.root == wanted.root && maps.Equal(running.env, wanted.env) {
			return nil
		}
		running.stop()
		running = nil
	}
	started, err := start(wanted)
	if err == nil {
		running = started
	}
	return err
}

func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

func table(name string, values map[string]string) string {
	text := "[" + name + "]\n"
	for key, value := range values {
		text += quote(key) + " = " + quote(value) + "\n"
	}
	return text
}

func (s *server) configuration() string {
	ini := filepath.Join(s.directory, "php.ini")
	text := fmt.Sprintf("listen = %s\ncontrol = %s\n[log]\nerror = %s\nlevel = \"info\"\n[compression]\ncodings = \"off\"\n",
		quote(s.address), quote(s.directory+"/control.sock"), quote(s.directory+"/log"))
	pool := func(name string, children int, more string, env map[string]string) {
		text += fmt.Sprintf("[pool.%s]\npm = \"static\"\nmax_children = %d\nmax_requests = %d\nqueue_size = 65535\nclear_env = false\nphp_ini = %s\n%s",
			name, children, s.maxRequests, quote(ini), more)
		text += table("pool."+name+".env", env)
	}
	pool("www", s.threads, "", nil)
	rules := ""
	for n, w := range s.workers {
		more := "mode = \"worker\"\nworker = " + quote(w.script) + "\n"
		if len(w.watch) > 0 {
			patterns := make([]string, len(w.watch))
			for i, pattern := range w.watch {
				patterns[i] = quote(absolute(pattern))
			}
			more += "watch = [" + strings.Join(patterns, ", ") + "]\n"
		}
		number := w.number
		if number == 0 {
			number = 4
		}
		pool("worker"+strconv.Itoa(n), number, more, w.env)
		if path, err := filepath.Rel(s.root, w.script); err == nil {
			rules += fmt.Sprintf("[[site.rule]]\nprefix = %s\npool = \"worker%d\"\n", quote("/"+path), n)
		}
	}
	return text + "[[site]]\npool = \"www\"\nroot = " + quote(s.root) + "\n" + table("site.env", s.env) + rules
}

func start(wanted settings) (*server, error) {
	directory, err := os.MkdirTemp("", "howdah-frankenphp-")
	if err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{settings: wanted, directory: directory, address: free.Addr().String(), ended: make(chan struct{})}
	_ = free.Close()
	lines := ""
	for key, value := range wanted.ini {
		lines += key + "=" + value + "\n"
	}
	file := filepath.Join(directory, "howdah.toml")
	if err := errors.Join(os.WriteFile(filepath.Join(directory, "php.ini"), []byte(lines), 0o644),
		os.WriteFile(file, []byte(s.configuration()), 0o644)); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	s.process = exec.Command(os.Getenv("HOWDAH"), "serve", "--config", file)
	s.process.Stdout, s.process.Stderr = &said, &said
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.process.Wait()
		close(s.ended)
	}()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s.answers() {
			go s.follow()
			return s, nil
		}
		select {
		case <-s.ended:
			_ = os.RemoveAll(directory)
			return nil, fmt.Errorf("howdah does not start: %s", said.String())
		default:
		}
	}
	s.stop()
	return nil, errors.New("howdah does not start within a minute")
}

// answers says whether the server serves: its port is open before, so that nothing is refused.
func (s *server) answers() bool {
	connection, err := net.Dial("tcp", s.address)
	if err != nil {
		return false
	}
	defer func() { _ = connection.Close() }()
	_, _ = io.WriteString(connection, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	answer, _ := io.ReadAll(connection)
	return len(answer) > 0
}

func (s *server) stop() {
	_ = s.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		_ = s.process.Process.Kill()
		<-s.ended
	}
	s.passLog()
	_ = os.RemoveAll(s.directory)
}

// follow passes the error log on while the server runs.
func (s *server) follow() {
	for {
		select {
		case <-s.ended:
			return
		case <-time.After(10 * time.Millisecond):
			s.passLog()
		}
	}
}

func (s *server) passLog() bool {
	s.logLock.Lock()
	defer s.logLock.Unlock()
	file, err := os.Open(s.directory + "/log")
	if s.logger == nil || err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	_, _ = file.Seek(s.logged, io.SeekStart)
	text, _ := io.ReadAll(file)
	whole := bytes.LastIndexByte(text, '\n') + 1
	s.logged += int64(whole)
	for _, line := range strings.Split(strings.TrimSuffix(string(text[:whole]), "\n"), "\n") {
		if line != "" {
			s.logger.Info(line)
		}
	}
	return whole > 0
}

func (s *server) exchange(w http.ResponseWriter, r *http.Request) error {
	var body []byte
	var err error
	if r.Body != nil {
		if body, err = io.ReadAll(r.Body); err != nil {
			return err
		}
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", r.Method, r.URL.RequestURI(), r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			head += name + ": " + value + "\r\n"
		}
	}
	if r.Header.Get("Content-Length") == "" && (len(body) > 0 || r.Method == http.MethodPost) {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	// Not before all is ready: a connection that says nothing for ten seconds is closed.
	connection, err := net.Dial("tcp", s.address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	defer context.AfterFunc(r.Context(), func() { _ = connection.Close() })()
	// An answer may come before all is sent, and the rest then not be taken.
	_, _ = connection.Write(append([]byte(head+"\r\n"), body...))
	reader := bufio.NewReader(connection)
	for {
		answer, err := http.ReadResponse(reader, r)
		if err != nil {
			if r.Context().Err() != nil {
				return nil
			}
			return err
		}
		clear(w.Header())
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		if answer.StatusCode >= 200 {
			piece := make([]byte, 32<<10)
			for {
				n, err := answer.Body.Read(piece)
				if n > 0 {
					_, _ = w.Write(piece[:n])
				}
				if err != nil {
					break
				}
			}
			break
		}
	}
	// What the script has logged arrives beside its answer: until nothing has for a while.
	for quiet := 0; s.logger != nil && quiet < 15; quiet++ {
		time.Sleep(10 * time.Millisecond)
		if s.passLog() {
			quiet = 0
		}
	}
	return nil
}
