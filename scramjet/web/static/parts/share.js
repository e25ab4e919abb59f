/** Downloads a run as one HTML file. */

import { toast } from "./toasts.js";

/** Have the server make the file and save it; `button` waits meanwhile. Says why where it cannot be made. */
export async function share(run, button) {
  button.disabled = true;
  try {
    const response = await fetch(`/api/runs/${encodeURIComponent(run)}/page`);
    if (!response.ok) throw new Error((await response.json()).error);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = `${run}.html`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  } catch (error) {
    toast(error.message, "error");
  } finally {
    button.disabled = false;
  }
}
