// What can be scrolled sideways can be reached by the keyboard; the two columns of the theme have names.
document.addEventListener("DOMContentLoaded", () => {
    for (const pre of document.querySelectorAll("pre")) {
        if (pre.scrollWidth > pre.clientWidth) pre.tabIndex = 0;
    }
    document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
    document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
});
