// The search runs in a worker, and browsers start none from file://. There, the same script runs in a hidden frame.
// Material asks for a file of this name; the one it would take by itself lies on the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data })); // what it answers
      this.ready = new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: url, onload: loaded, onerror: failed });
        inside.document.body.append(script);
      });
      this.inside = inside;
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
  };
}
