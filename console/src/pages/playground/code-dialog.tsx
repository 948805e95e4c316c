import { Samples } from "../../snippets/samples.tsx";
import type { CallBody } from "../../snippets/snippets.ts";
import { Dialog } from "../../ui/dialog.tsx";

/** Dialog with code samples for the current request. */
export function CodeDialog({ body, onClose }: { body: CallBody; onClose: () => void }) {
  return (
    <Dialog title="Code for this request" onClose={onClose} className="dialog-wide">
      <div className="dialog-body">
        <Samples body={{ ...body, stream: true }} />
      </div>
    </Dialog>
  );
}
