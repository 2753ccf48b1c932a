package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/forge-scheduler/forge/dashboard/web"
)

//go:embed static/*.js static/*.css static/*.svg
var staticFS embed.FS

// asset is a file under /static. Its name contains a digest of its content, so browsers may
// cache it forever.
type asset struct {
	name     string // app.0a1b2c3d4e.css
	mimeType string
	plain    []byte
	gzipped  []byte
}

type assets struct {
	byName map[string]asset  // by hashed name
	Hashed map[string]string // app.css to app.0a1b2c3d4e.css
}

// loadAssets compresses the files once per process.
var loadAssets = sync.OnceValue(func() *assets {
	a := &assets{byName: map[string]asset{}, Hashed: map[string]string{}}
	entries, err := fs.ReadDir(staticFS, "static")
	if err != nil {
		panic(err) // the directory is embedded
	}
	for _, entry := range entries {
		plain, err := staticFS.ReadFile("static/" + entry.Name())
		if err != nil {
			panic(err)
		}
		file := newAsset(entry.Name(), plain)
		a.byName[file.name] = file
		a.Hashed[entry.Name()] = file.name
	}
	return a
})

func newAsset(name string, plain []byte) asset {
	sum := sha256.Sum256(plain)
	ext := path.Ext(name)
	var packed bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
	_, _ = zip.Write(plain)                                      // into memory
	_ = zip.Close()
	return asset{
		name:     strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:5]) + ext,
		mimeType: mime.TypeByExtension(ext), plain: plain, gzipped: packed.Bytes(),
	}
}

// url returns the address of a file by its plain name.
func (a *assets) url(name string) string { return "/static/" + a.Hashed[name] }

func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, ok := a.byName[r.PathValue("file")]
	if !ok {
		web.WriteProblem(w, http.StatusNotFound, "There is no such file. Reload the page.")
		return
	}
	h := w.Header()
	h.Set("Content-Type", file.mimeType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := file.plain
	if web.AcceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = file.gzipped
	}
	_, _ = w.Write(body) // the client is gone
}
