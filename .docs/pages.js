// What can be scrolled sideways can be reached by the keyboard; the two columns of the theme have names.
document.addEventListener("DOMContentLoaded", () => {
    for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
        if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    }
    document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
    document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
});
