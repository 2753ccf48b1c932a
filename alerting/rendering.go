package alerting

import (
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/model"

	"github.com/forge-scheduler/forge/internal/alerts"
)

// firstNotification is Alertmanager's name for the reason of a message.
const firstNotification = "first notification"

// rendering is a message for one receiver. It fills in Alertmanager's templates, with the data
// that they have there. After an error, every text is empty.
type rendering struct {
	// key is the same for all messages about one subject.
	key      string
	data     *template.Data
	template *template.Template
	err      error
}

func (r *receivers) rendering(receiver string, m alerts.Message) *rendering {
	group := model.LabelSet{model.AlertNameLabel: model.LabelValue(m.Labels[model.AlertNameLabel])}
	data := r.template.Data(receiver, group, nil, firstNotification, alertsOf(m)...)
	return &rendering{key: m.Key, data: data, template: r.template}
}

// resolved reports whether all occurrences are over.
func (m *rendering) resolved() bool { return m.data.Status == string(model.AlertResolved) }

// text fills in a template of a text.
func (m *rendering) text(template string) (text string) {
	if m.err == nil {
		text, m.err = m.template.ExecuteTextString(template, m.data)
	}
	return text
}

// html fills in a template of HTML, with escapes.
func (m *rendering) html(template string) (text string) {
	if m.err == nil {
		text, m.err = m.template.ExecuteHTMLString(template, m.data)
	}
	return text
}

// cut shortens a text to a number of characters.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
