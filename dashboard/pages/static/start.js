// Loads the scripts of the page once it is painted: they would delay that. They run in their order.
(() => {
  'use strict';
  const scripts = document.currentScript.dataset.scripts.split(' ');
  const start = () => {
    for (const src of scripts) {
      const script = document.createElement('script');
      script.src = src;
      script.async = false;
      document.head.append(script);
    }
  };
  const painted = () => { // a hidden page is not painted
    if (document.hidden) {
      start();
      return;
    }
    new PerformanceObserver((_, observer) => {
      observer.disconnect();
      start();
    }).observe({ type: 'paint', buffered: true }); // known once it is on the screen
  };
  if (document.readyState === 'complete') painted(); else addEventListener('load', painted);
})();
